// Text of language models for nnefc.mjs: tokens of a text, the text of tokens, and conversations by a chat template.

import { NnefcError } from "./nnefc_module.mjs";

const WITH_BEGIN_AND_END = 1, FIND_CONTROL = 2, SKIP_CONTROL = 4, CONTINUES = 8; // flags of nnefc_tokenize and nnefc_detokenize
const ADD_GENERATION_PROMPT = 1; // of nnefc_chat_options
const OK = 0, BAD_ARGUMENT = 1, TOO_SMALL = 10, TEMPLATE_ERROR = 12; // of nnefc_status
const TOKEN_BYTES = 8;
const ERROR_BYTES = 512;
const FIRST_ROOM = 4096;

// Offsets in nnefc_message and nnefc_chat_options, where pointers have 32 bits. Each text is an address and a size.
const MESSAGE = { more: 16, size: 24 };
const OPTIONS = { structSize: 0, flags: 4, tools: 8, variables: 16, localTime: 24, error: 32, errorRoom: 36, size: 40 };

// Calls `use` with addresses of memory of these sizes, which is free afterwards. It is zeros.
function withMemory(library, sizes, use) {
  const addresses = [];
  try {
    for (const size of sizes) addresses.push(library.allocate(size));
    addresses.forEach((address, i) => new Uint8Array(library.functions.memory.buffer, address, sizes[i]).fill(0));
    return use(...addresses);
  } finally {
    for (const address of addresses) library.functions.free(address);
  }
}

function bytesAt(library, address, size) {
  return new Uint8Array(library.functions.memory.buffer, address, size).slice();
}

function write(library, address, bytes) {
  new Uint8Array(library.functions.memory.buffer, address, bytes.length).set(bytes);
}

function statusName(library, status) {
  return library.text(library.functions.nnefc_status_name(status) >>> 0);
}

// Calls a function with memory of at least `room` elements until it is enough. Returns the status, and a copy of what was written.
function called(library, room, elementBytes, call) {
  for (;;) {
    const [status, size, bytes] = withMemory(library, [room * elementBytes, 4], (address, sizeAt) => {
      const found = call(address, room, sizeAt), count = library.uint32(sizeAt);
      return [found, count, found === OK ? bytesAt(library, address, count * elementBytes) : undefined];
    });
    if (status !== TOO_SMALL) return [status, bytes];
    room = size;
  }
}

export function tokensOf(library, text, beginAndEnd, control) {
  const { nnefc_tokenize } = library.functions;
  if (nnefc_tokenize === undefined) throw new NnefcError(`${library.name} has no tokenizer: compile the model with the option tokenizer`);
  const bytes = new TextEncoder().encode(text);
  const flags = (beginAndEnd ? WITH_BEGIN_AND_END : 0) | (control ? FIND_CONTROL : 0);
  return withMemory(library, [bytes.length], (at) => {
    write(library, at, bytes);
    const [status, found] = called(library, (bytes.length >> 1) + 16, TOKEN_BYTES, (tokens, room, count) =>
      nnefc_tokenize(at, bytes.length, flags, tokens, room, count),
    );
    if (status !== OK) throw new NnefcError(`no tokens of the text: ${statusName(library, status)}`);
    return Array.from(new BigInt64Array(found.buffer), Number);
  });
}

// The text of tokens in UTF-8; its end may be a part of a character.
function textOf(library, tokens, skipControl, continues) {
  const { nnefc_detokenize } = library.functions;
  if (nnefc_detokenize === undefined) throw new NnefcError(`${library.name} has no tokenizer: compile the model with the option tokenizer`);
  if (!tokens.every((token) => typeof token === "bigint" || Number.isSafeInteger(token))) throw new NnefcError("tokens are integers");
  const flags = (skipControl ? SKIP_CONTROL : 0) | (continues ? CONTINUES : 0);
  return withMemory(library, [tokens.length * TOKEN_BYTES], (at) => {
    write(library, at, new Uint8Array(BigInt64Array.from(tokens, BigInt).buffer));
    const [status, found] = called(library, 8 * tokens.length + 16, 1, (text, room, size) =>
      nnefc_detokenize(at, tokens.length, flags, text, room, size),
    );
    if (status === BAD_ARGUMENT) throw new NnefcError(`${library.name} has no such token among [${tokens.slice(0, 8)}]`);
    if (status !== OK) throw new NnefcError(`no text of the tokens: ${statusName(library, status)}`);
    return found;
  });
}

export function detokenized(library, tokens, skipControl) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(textOf(library, Array.from(tokens), skipControl, false));
}

/** The text of tokens that come one after the other. Made by `Model.textStream`. */
export class TextStream {
  #library;
  #skipControl;
  #continues = false;
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true }); // keeps the beginning of a character

  constructor(library, skipControl) {
    this.#library = library;
    this.#skipControl = skipControl;
  }

  /** The text that a token adds; a character of several tokens comes with the last one of them. */
  add(token) {
    const bytes = textOf(this.#library, [token], this.#skipControl, this.#continues);
    this.#continues = true;
    return this.#decoder.decode(bytes, { stream: true });
  }

  /** What is left: the beginning of a character that did not end, as U+FFFD. */
  end() {
    return this.#decoder.decode();
  }
}

// Seconds since 1970 began, both in local time.
function localTime() {
  const now = new Date();
  return Math.floor(now.getTime() / 1000) - 60 * now.getTimezoneOffset();
}

export function chatText(library, messages, { tools, addGenerationPrompt = true, variables } = {}) {
  const { nnefc_chat } = library.functions;
  if (nnefc_chat === undefined) throw new NnefcError(`${library.name} has no chat template that could be compiled`);
  const texts = [tools ?? undefined, variables, ...messages].map((value) =>
    value === undefined ? new Uint8Array() : new TextEncoder().encode(JSON.stringify(value)),
  );
  const sizes = [MESSAGE.size * messages.length, OPTIONS.size, ERROR_BYTES, ...texts.map((text) => text.length)];
  return withMemory(library, sizes, (list, options, error, ...addresses) => {
    texts.forEach((text, i) => write(library, addresses[i], text));
    const view = library.view();
    const setText = (at, i) => {
      view.setUint32(at, addresses[i], true);
      view.setUint32(at + 4, texts[i].length, true);
    };
    messages.forEach((_, i) => setText(list + i * MESSAGE.size + MESSAGE.more, i + 2));
    view.setUint32(options + OPTIONS.structSize, OPTIONS.size, true);
    view.setUint32(options + OPTIONS.flags, addGenerationPrompt ? ADD_GENERATION_PROMPT : 0, true);
    setText(options + OPTIONS.tools, 0);
    setText(options + OPTIONS.variables, 1);
    view.setBigInt64(options + OPTIONS.localTime, BigInt(localTime()), true);
    view.setUint32(options + OPTIONS.error, error, true);
    view.setUint32(options + OPTIONS.errorRoom, ERROR_BYTES, true);
    const [status, found] = called(library, FIRST_ROOM, 1, (text, room, size) =>
      nnefc_chat(list, messages.length, options, text, room, size),
    );
    if (status === OK) return new TextDecoder("utf-8", { ignoreBOM: true }).decode(found);
    throw new NnefcError(`the chat template: ${status === TEMPLATE_ERROR ? library.text(error) : statusName(library, status)}`);
  });
}
