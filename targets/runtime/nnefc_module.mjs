// Modules of WebAssembly for nnefc.mjs: how they come here, what the engine can run, and threads.
//
// Only programs can start threads, as workers. A module that is made for them imports its memory, which the workers' instances
// share; each worker learns which of the threads it is that the module has a record of, and runs it until it is ended. Where
// memory cannot be shared with workers, as in pages that are not isolated from others, there is one thread.

const MAX_THREADS = 256; // of a session
const MEMORY_SECTION = "nnefc.memory"; // pages at first and at most, written by nnefc
const CONSTANTS_SECTION = "nnefc.constants"; // the last one: a 32-bit address, then what belongs there
const CONSTANTS_NAME = [CONSTANTS_SECTION.length, ...Array.from(CONSTANTS_SECTION, (letter) => letter.charCodeAt(0))];
const ADDRESS_BYTES = 4;
const MODULE_START = [0, 97, 115, 109, 1, 0, 0, 0]; // "\0asm", version 1
const FIRST_BYTES = 1 << 19; // of a file, in which its code mostly ends
const MAX_CODE_BYTES = 1 << 30; // that engines take
const MAX_READ_BYTES = 1 << 30; // at a time: Node.js reads less than 2^31
const HEADER_BYTES = 32; // of a section, with the name and an address
const NUMBER_BYTES = 5; // of 32 bits, at most

// Modules with one instruction of each feature: i8x16.relaxed_swizzle, memory.atomic.notify.
const PROBES = {
  "relaxed-simd": [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 0, 253, 15, 65, 0, 253, 15, 253,
    128, 2, 11,
  ],
  atomics: [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 5, 4, 1, 3, 1, 1, 10, 12, 1, 10, 0, 65, 0, 65, 0, 254, 0, 2,
    0, 11,
  ],
};

// A module with a function `dot`: four products of the same bytes, by i32x4.relaxed_dot_i8x16_i7x16_add_s.
const DOT = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3, 100, 111, 116, 0, 0, 10, 36, 1, 34,
  0, 32, 0, 253, 15, 32, 1, 253, 15, 253, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 253, 147, 2, 253, 27, 0, 11,
];

// What it gives where the second byte has eight bits, and the sum of two products more than 16: engines may differ, and each one
// does always the same.
const DOTS = {
  "relaxed-udot": [[127, 255, 4 * 127 * 255], [-128, 255, -4 * 128 * 255]],
  "relaxed-sdot": [[127, -1, -4 * 127], [-128, -128, 4 * 128 * 128]],
};

/** What went wrong: a file that is no network, inputs that do not fit, a failure of the network's code. */
export class NnefcError extends Error {
  name = "NnefcError";
}

/**
 * Whether this engine runs modules for targets with a feature.
 *
 * @param {"relaxed-simd" | "relaxed-udot" | "relaxed-sdot" | "atomics"} feature of `nnefc targets`.
 */
export function supports(feature) {
  if (Object.hasOwn(PROBES, feature)) return WebAssembly.validate(new Uint8Array(PROBES[feature]));
  if (!Object.hasOwn(DOTS, feature)) {
    const known = Object.keys({ ...PROBES, ...DOTS }).join(", ");
    throw new NnefcError(`unknown feature "${feature}": say one of ${known}`);
  }
  const module = new Uint8Array(DOT);
  if (!WebAssembly.validate(module)) return false;
  const { dot } = new WebAssembly.Instance(new WebAssembly.Module(module)).exports;
  return DOTS[feature].every(([first, second, sum]) => dot(first, second) === sum);
}

/** The first of the sources whose needs this engine meets. */
export function chosen(sources) {
  for (const source of Array.isArray(sources) ? sources : [sources]) {
    if (source?.source === undefined) return source;
    if ([source.needs ?? []].flat().every(supports)) return source.source;
  }
  throw new NnefcError("this engine lacks what each of the modules needs: add one for wasm32-wasi to the list");
}

/**
 * The module that a source stands for, and its trained values. Those of larger networks are the last section of the file, which
 * no engine is given: they are read into the memory of the instance, or written there as they arrive.
 *
 * @returns {Promise<{module: WebAssembly.Module, constants: Constants | undefined}>}
 */
export async function moduleOf(source) {
  if (source instanceof WebAssembly.Module) {
    const [section] = WebAssembly.Module.customSections(source, CONSTANTS_SECTION);
    return { module: source, constants: section && new Constants(section.byteLength, new Uint8Array(section), noMore) };
  }
  const { code, constants } = await contentOf(source);
  try {
    return { module: await WebAssembly.compile(code), constants };
  } catch (error) {
    await constants?.close();
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new NnefcError(`no WebAssembly module that this engine can run: ${error.message}`, { cause: error });
  }
}

const noMore = { read: async () => 0, close: async () => {} };

// Trained values: how long their section is, how it begins, and what reads the rest into an array, at most as much as fits.
class Constants {
  #size;
  #begin;
  #tail;

  constructor(size, begin, tail) {
    [this.#size, this.#begin, this.#tail] = [size, begin.subarray(0, Math.max(0, size)), tail];
    if (this.#begin.length < ADDRESS_BYTES) throw new NnefcError(`the module's section ${CONSTANTS_SECTION} has no address`);
  }

  // Writes them to where they belong in a memory, once.
  async fill(memory) {
    const begin = this.#begin, count = this.#size - ADDRESS_BYTES;
    const address = new DataView(begin.buffer, begin.byteOffset).getUint32(0, true);
    if (address + count > memory.buffer.byteLength) throw new NnefcError("the module has no room for its trained values");
    const target = new Uint8Array(memory.buffer, address, count);
    target.set(begin.subarray(ADDRESS_BYTES));
    for (let at = begin.length - ADDRESS_BYTES; at < count; ) {
      const read = await this.#tail.read(target.subarray(at));
      if (read === 0) throw new NnefcError(`the module ends after ${at} of ${count} bytes of trained values`);
      at += read;
    }
  }

  close() {
    return this.#tail.close();
  }
}

// The bytes of the code, and the constants if these are apart.
async function contentOf(source) {
  if (source instanceof ArrayBuffer) return parted(new Uint8Array(source));
  if (ArrayBuffer.isView(source)) return parted(new Uint8Array(source.buffer, source.byteOffset, source.byteLength));
  if (typeof source === "string" && source.startsWith("file:")) source = new URL(source);
  const isFile = source instanceof URL ? source.protocol === "file:" : typeof source === "string" && !/^(https?|blob|data):/.test(source);
  if (isFile && usesNode()) return arriving(await fileReader(source)); // Node.js loads `fetch` for long
  const answer = source instanceof Response ? source : await fetch(source);
  if (!answer.ok) throw new NnefcError(`${answer.url || source}: ${answer.status} ${answer.statusText}`);
  return answer.body === null ? parted(new Uint8Array(await answer.arrayBuffer())) : arriving(streamReader(answer.body));
}

function parted(bytes) {
  const { start, section } = constantsIn(bytes, true, MODULE_START.length);
  if (section === undefined) return { code: bytes };
  return { code: bytes.subarray(0, start), constants: new Constants(section.size, bytes.subarray(section.content), noMore) };
}

// As much as it takes to find the constants; what is behind is read when there is a memory for it.
async function arriving(reader) {
  let bytes = new Uint8Array(FIRST_BYTES), count = 0, known = MODULE_START.length;
  try {
    for (;;) {
      const read = await reader.read(bytes.subarray(count)), begin = bytes.subarray(0, (count += read));
      const { start, section } = constantsIn(begin, read === 0, known);
      if (section !== undefined) {
        const constants = new Constants(section.size, begin.subarray(section.content), reader);
        return { code: begin.subarray(0, start), constants };
      }
      known = start;
      if (read === 0) {
        await reader.close();
        return { code: begin };
      }
      if (count === bytes.length) {
        bytes = new Uint8Array(2 * count);
        bytes.set(begin);
      }
    }
  } catch (error) {
    await reader.close();
    throw error;
  }
}

// Looks for the constants' section in a module of which these bytes are the beginning, or the whole, from the start of one of its
// sections on. Returns where it starts, where its content does, and how long that is; or the start of the first section that is not
// among the bytes.
function constantsIn(bytes, isWhole, start) {
  if (MODULE_START.some((byte, i) => bytes[i] !== byte && (isWhole || i < bytes.length))) {
    const found = Array.from(bytes.subarray(0, MODULE_START.length), (byte) => byte.toString(16).padStart(2, "0"));
    throw new NnefcError(`no WebAssembly module: it begins with the bytes "${found.join(" ")}"`);
  }
  while (start + (isWhole ? 0 : HEADER_BYTES) < bytes.length) {
    const [size, begin] = numberAt(bytes, start + 1);
    const isFound = bytes[start] === 0 && CONSTANTS_NAME.every((byte, i) => bytes[begin + i] === byte);
    if (isFound) return { start, section: { content: begin + CONSTANTS_NAME.length, size: size - CONSTANTS_NAME.length } };
    start = begin + size;
    if (start > MAX_CODE_BYTES) throw new NnefcError(`no WebAssembly module: a section of it ends at byte ${start}`);
  }
  return { start };
}

// An unsigned number (LEB128), and where it ends.
function numberAt(bytes, at) {
  let value = 0;
  for (let i = 0; i < NUMBER_BYTES; i++) {
    const byte = bytes[at++] ?? 0;
    value += (byte & 127) * 128 ** i;
    if (byte < 128) return [value, at];
  }
  throw new NnefcError(`no WebAssembly module: the number before byte ${at} has more than 32 bits`);
}

// Readers fill an array from its beginning, as far as there is something, and say how far: 0 at the end.
async function fileReader(name) {
  const { open } = await ofNode("fs/promises");
  const file = await open(name);
  const read = async (target) => (await file.read(target, 0, Math.min(target.length, MAX_READ_BYTES), null)).bytesRead;
  return { read, close: () => file.close() };
}

function streamReader(stream) {
  const reader = stream.getReader();
  let chunk = new Uint8Array();
  const read = async (target) => {
    while (chunk.length === 0) {
      const { done, value } = await reader.read();
      if (done) return 0;
      chunk = value;
    }
    const count = Math.min(chunk.length, target.length);
    target.set(chunk.subarray(0, count));
    chunk = chunk.subarray(count);
    return count;
  };
  return { read, close: () => reader.cancel() };
}

/**
 * An instance of a module, with its trained values and the threads that it may use.
 *
 * @param {{module: WebAssembly.Module, constants: Constants | undefined}} source of `moduleOf`, used once.
 * @param {number} [threads] at most; by default as many as the machine has processors.
 * @returns {Promise<{functions: Object, end: function(): void}>} its exports with its memory, and what ends the workers.
 */
export async function instantiated({ module, constants }, threads) {
  try {
    return await started(module, constants, threads);
  } finally {
    await constants?.close();
  }
}

async function started(module, constants, threads) {
  if (threads !== undefined && !(Number.isInteger(threads) && threads >= 1 && threads <= MAX_THREADS))
    throw new NnefcError(`threads is ${threads}, not a number from 1 to ${MAX_THREADS}`);
  const [note] = WebAssembly.Module.customSections(module, MEMORY_SECTION);
  if (note?.byteLength < 8) throw new NnefcError(`the module's section ${MEMORY_SECTION} has ${note.byteLength} bytes, not 8`);
  const memory = note === undefined ? undefined : sharedMemory(new DataView(note));
  const strange = WebAssembly.Module.imports(module).find(({ kind }) => memory === undefined || kind !== "memory");
  if (strange !== undefined) throw new NnefcError(`the module needs ${strange.module}.${strange.name}: it is no network of nnefc`);
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  const functions = memory === undefined ? exports : { ...exports, memory };
  for (const name of ["memory", "malloc", "free", "nnefc_describe", "nnefc_create", "nnefc_run"])
    if (!(name in functions)) throw new NnefcError(`the module has no ${name}: it is no network of nnefc`);
  functions._initialize?.();
  const arrival = constants?.fill(functions.memory);
  arrival?.catch(() => {}); // it is waited for below, whatever happens before
  if (memory === undefined) {
    await arrival; // memory may not grow meanwhile
    functions.nnefc_warm_up?.();
    return { functions, end() {} };
  }
  functions.nnefc_may_wait(mayWait(memory) ? 1 : 0);
  const count = (threads ?? (await processors())) - 1, lending = lend(module, functions, count);
  if (count > 0) await new Promise((resolve) => setTimeout(resolve)); // the workers begin meanwhile
  functions.nnefc_warm_up?.();
  const workers = await lending, end = () => workers.forEach((worker) => worker.terminate());
  try {
    await arrival;
  } catch (error) {
    end();
    throw error;
  }
  return { functions, end };
}

function sharedMemory(note) {
  const initial = note.getUint32(0, true);
  for (let maximum = note.getUint32(4, true); ; maximum = Math.max(initial, maximum >> 1))
    try {
      return new WebAssembly.Memory({ initial, maximum, shared: true });
    } catch (error) {
      if (maximum > initial) continue; // small devices reserve less
      throw new NnefcError(`no memory of ${initial * 65536} bytes that threads can share: ${error.message}`, { cause: error });
    }
}

// Whether this thread may wait for others: a browser's own may not.
function mayWait(memory) {
  try {
    Atomics.wait(new Int32Array(memory.buffer), 0, 0, 0);
    return true;
  } catch {
    return false;
  }
}

async function processors() {
  if (!usesNode()) return globalThis.navigator?.hardwareConcurrency ?? 1;
  const os = await ofNode("os");
  return os.availableParallelism?.() ?? os.cpus().length;
}

/* A module of Node.js, by a name that bundlers for browsers do not look for. */
function ofNode(name) {
  const address = `node:${name}`;
  return import(/* webpackIgnore: true */ /* @vite-ignore */ address);
}

function usesNode() {
  return globalThis.process?.versions?.node !== undefined;
}

// Workers that have begun to run the module's threads; fewer than wanted where they cannot be started.
async function lend(module, functions, count) {
  const started = Array.from({ length: count }, async () => {
    const thread = functions.nnefc_lend() >>> 0;
    if (thread === 0) return undefined;
    const worker = await workerFor({ module, memory: functions.memory, thread }).catch(() => undefined);
    if (worker !== undefined) functions.nnefc_lent(thread);
    return worker;
  });
  return (await Promise.all(started)).filter((worker) => worker !== undefined);
}

const RUN = `
  const run = ({ module, memory, thread }, tell) => {
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    tell("begun");
    exports.nnefc_run_lent(thread);
  };
`;

// A worker that runs a thread, when it says so. One that does not is ended: no other part knows of it.
async function workerFor(thread) {
  const { worker, begun } = usesNode() ? await nodeWorker(thread) : browserWorker(thread);
  try {
    await begun;
    return worker;
  } catch (error) {
    worker.terminate();
    throw error;
  }
}

async function nodeWorker(thread) {
  const { Worker } = await ofNode("worker_threads");
  const script = `${RUN} const { parentPort, workerData } = require("node:worker_threads");
    run(workerData, (word) => parentPort.postMessage(word));`;
  const worker = new Worker(script, { eval: true, workerData: thread });
  const begun = new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject).once("exit", reject));
  return { worker, begun: begun.then(() => worker.unref()) }; // a program may end without ending it
}

function browserWorker(thread) {
  const address = URL.createObjectURL(new Blob([`${RUN} onmessage = ({ data }) => run(data, postMessage);`], { type: "text/javascript" }));
  try {
    const worker = new Worker(address);
    const begun = new Promise((resolve, reject) => {
      Object.assign(worker, { onmessage: resolve, onerror: reject });
      worker.postMessage(thread); // fails in pages that are not isolated from others
    });
    return { worker, begun: begun.finally(() => URL.revokeObjectURL(address)) };
  } catch (error) {
    URL.revokeObjectURL(address);
    throw error;
  }
}
