// Loads a network that nnefc compiled for WebAssembly, and runs it: in Node.js, Deno, Bun and browsers.
//
//     import { load } from "./nnefc.mjs";
//     const model = await load("digits.wasm");
//     const { probability } = model.run({ image: new Float32Array(64) });
//
// Where sizes of the network are open, inputs say their shapes, unless one size alone is open; outputs have the property
// `shape`:
//
//     const { scores } = model.run({ image: { data: pixels, shape: [5, 3, 224, 224] } });
//     scores.shape; // [5, 1000]
//
// Tensors are typed arrays, dense and row-major; `model.inputs` and `model.outputs` tell their names, types and shapes.
// Arrays of float16 and bfloat16 hold bit patterns as Uint16Array, booleans are bytes, 64-bit integers are BigInts. Tensors
// of strings are arrays of strings.
//
// A module for a target with threads, such as wasm32-threads, runs on several workers where these can share memory, and on
// the calling thread elsewhere; all others run on the calling thread. A run holds it up: a worker can load a network for itself.
// Of several modules, the first is loaded that the engine can run:
//
//     const model = await load([{ source: "net.relaxed.wasm", needs: "relaxed-simd" }, "net.wasm"], { threads: 4 });
//
// Modules of language models take and give text: `model.tokenize`, `model.detokenize`, `model.textStream`, `model.chatText`.

import { NnefcError, chosen, instantiated, moduleOf, supports } from "./nnefc_module.mjs";
import { TextStream, chatText, detokenized, tokensOf } from "./nnefc_text.mjs";

export { NnefcError, supports };

const ABI_VERSION = 1;
const OPEN_ABI_VERSION = 2; // of networks with dynamic sizes

// nnefc_type → name, typed array
const TYPES = new Map([
  [1, ["bool", Uint8Array]],
  [2, ["int8", Int8Array]],
  [3, ["int16", Int16Array]],
  [4, ["int32", Int32Array]],
  [5, ["int64", BigInt64Array]],
  [6, ["uint8", Uint8Array]],
  [7, ["uint16", Uint16Array]],
  [8, ["uint32", Uint32Array]],
  [9, ["uint64", BigUint64Array]],
  [10, ["float16", Uint16Array]],
  [11, ["bfloat16", Uint16Array]],
  [12, ["float32", Float32Array]],
  [13, ["float64", Float64Array]],
  [14, ["string", undefined]],
]);

// Offsets in nnefc_description and nnefc_tensor, where pointers have 32 bits.
const DESCRIPTION = {
  abiVersion: 0, model: 8, target: 12, compiler: 16, inputs: 20, outputs: 24, states: 28,
  inputCount: 32, outputCount: 36, stateCount: 40, workspaceBytes: 56, constantBytes: 72,
  dimensionCount: 120, dimensions: 124,
};
const TENSOR = { name: 0, type: 4, rank: 8, shape: 12, bytes: 16, size: 24 };
const DIMENSION = { name: 0, least: 8, most: 16, multiple: 24, typical: 32, size: 40 };
// of nnefc_input and nnefc_output
const INPUT = { data: 0, bytes: 8, shape: 16, size: 24 };
const OUTPUT = { data: 16, bytes: 24, shape: 32, size: 40 };
const STRING = { data: 0, bytes: 4, size: 8 };

/**
 * Loads a network.
 *
 * @param source a file's name (where there are files), an address, a Response, the file's bytes, or the compiled module; or a
 *     list of these, or of `{ source, needs }` with features of `supports`, of which the first is taken that the engine can run.
 * @param {{threads?: number}} [options] `threads`: how many a module uses that is made for several; by default as many as the
 *     machine has processors.
 * @returns {Promise<Model>}
 */
export async function load(source, { threads } = {}) {
  const { functions, end } = await instantiated(await moduleOf(chosen(source)), threads);
  try {
    return new Model(new Library(functions, end));
  } catch (error) {
    end(); // of a module that is of another version, or has no memory for a session
    throw error;
  }
}

// The functions and the memory of an instance.
class Library {
  #end; // ends the workers
  #sessions = 0;

  constructor(functions, end) {
    this.functions = functions;
    this.#end = end;
    const at = functions.nnefc_describe() >>> 0;
    const version = this.uint32(at + DESCRIPTION.abiVersion);
    this.isOpen = version === OPEN_ABI_VERSION;
    if (version !== ABI_VERSION && !this.isOpen)
      throw new NnefcError(`the network has version ${version} of nnefc's interface, this loader knows 1 and 2`);
    this.name = this.text(this.uint32(at + DESCRIPTION.model));
    this.target = this.text(this.uint32(at + DESCRIPTION.target));
    this.compiler = this.text(this.uint32(at + DESCRIPTION.compiler));
    this.dimensions = this.isOpen ? this.dynamicDimensions(at) : [];
    this.inputs = this.tensors(at + DESCRIPTION.inputs, at + DESCRIPTION.inputCount);
    this.outputs = this.tensors(at + DESCRIPTION.outputs, at + DESCRIPTION.outputCount);
    this.states = this.tensors(at + DESCRIPTION.states, at + DESCRIPTION.stateCount);
    this.workspaceBytes = Number(this.view().getBigUint64(at + DESCRIPTION.workspaceBytes, true));
    this.constantBytes = Number(this.view().getBigUint64(at + DESCRIPTION.constantBytes, true));
  }

  // Made again each time: memory that has grown is another buffer.
  view() {
    return new DataView(this.functions.memory.buffer);
  }

  uint32(address) {
    return this.view().getUint32(address, true);
  }

  text(address) {
    const bytes = new Uint8Array(this.functions.memory.buffer, address);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))); // it refuses memory that is shared
  }

  // A session more, or one less; without any, there are no workers.
  count(change) {
    this.#sessions += change;
    if (this.#sessions === 0) this.#end();
  }

  int64(address) {
    return Number(this.view().getBigInt64(address, true));
  }

  dynamicDimensions(description) {
    const first = this.uint32(description + DESCRIPTION.dimensions);
    return Array.from({ length: this.uint32(description + DESCRIPTION.dimensionCount) }, (_, i) => {
      const at = first + i * DIMENSION.size;
      const [least, most, multiple, typical] = ["least", "most", "multiple", "typical"].map((n) => this.int64(at + DIMENSION[n]));
      return Object.freeze({ name: this.text(this.uint32(at + DIMENSION.name)), least, most, multiple, typical });
    });
  }

  sizes(address, rank) {
    return Array.from({ length: rank }, (_, axis) => this.int64(address + 8 * axis));
  }

  tensors(address, count) {
    const first = this.uint32(address);
    return Array.from({ length: this.uint32(count) }, (_, i) => this.tensor(first + i * TENSOR.size));
  }

  tensor(at) {
    const [type, array] = TYPES.get(this.uint32(at + TENSOR.type));
    const numbers = this.sizes(this.uint32(at + TENSOR.shape), this.uint32(at + TENSOR.rank));
    const extents = numbers.map((size) => (size >= 0 ? size : (this.dimensions[-1 - size]?.name ?? "?")));
    const bytes = Number(this.view().getBigUint64(at + TENSOR.bytes, true));
    return Object.freeze({ name: this.text(this.uint32(at + TENSOR.name)), type, shape: extents, array, bytes });
  }

  // The elements of a tensor at an address, in an array of their own.
  elements(tensor, address, count) {
    const { buffer } = this.functions.memory;
    if (tensor.type !== "string") return new tensor.array(buffer, address, count).slice();
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return Array.from({ length: count }, (_, i) => {
      const at = address + i * STRING.size;
      return decoder.decode(new Uint8Array(buffer, this.uint32(at + STRING.data), this.uint32(at + STRING.bytes)).slice());
    });
  }

  // Writes strings to an address, and their bytes to new memory, whose address is returned.
  writeStrings(address, strings) {
    const texts = strings.map((string) => new TextEncoder().encode(string));
    const bytes = this.allocate(texts.reduce((sum, text) => sum + text.length, 0));
    const view = this.view(), memory = new Uint8Array(this.functions.memory.buffer);
    let at = bytes;
    texts.forEach((text, i) => {
      memory.set(text, at);
      view.setUint32(address + i * STRING.size + STRING.data, at, true);
      view.setUint32(address + i * STRING.size + STRING.bytes, text.length, true);
      at += text.length;
    });
    return bytes;
  }

  allocate(bytes) {
    const address = this.functions.malloc(Math.max(bytes, 1)) >>> 0;
    if (address === 0) throw new NnefcError(`no memory for ${bytes} bytes`);
    return address;
  }

  check(status, session) {
    if (status === 0) return;
    const name = this.text(this.functions.nnefc_status_name(status) >>> 0);
    throw new NnefcError(`${name}: ${this.text(this.functions.nnefc_last_error(session) >>> 0)}`);
  }
}

/**
 * A network with a session of its own. Made by `load`.
 *
 * `inputs` and `outputs` tell names, types and shapes; a dynamic size is the name of one of `dimensions`, or "?".
 */
export class Model {
  #library;
  #session;
  #addresses = []; // of the tensors inside, then of the two lists of them; of a network with dynamic sizes, see #runSized
  #room; // the bytes at each of these addresses, of a network with dynamic sizes
  #texts = []; // addresses of the bytes of strings, of the last run

  constructor(library) {
    this.#library = library;
    this.name = library.name;
    this.target = library.target;
    this.compiler = library.compiler;
    this.inputs = library.inputs;
    this.outputs = library.outputs;
    this.states = library.states;
    this.workspaceBytes = library.workspaceBytes;
    this.constantBytes = library.constantBytes;
    this.dimensions = library.dimensions;
    const made = library.allocate(4);
    library.count(1);
    try {
      library.check(library.functions.nnefc_create(0, made), 0);
      this.#session = library.uint32(made);
      this.#makeLists();
    } catch (error) {
      if (this.#session === undefined) library.count(-1);
      else this.close();
      throw error;
    } finally {
      library.functions.free(made);
    }
  }

  // Makes memory for the tensors, and lists of it.
  #makeLists() {
    const library = this.#library, tensors = [...this.inputs, ...this.outputs];
    if (library.isOpen) {
      this.#addresses = [...this.inputs, null].map(() => 0);
      this.#room = this.#addresses.map(() => 0);
      return;
    }
    for (const tensor of tensors) this.#addresses.push(library.allocate(tensor.bytes));
    const lists = library.allocate(4 * tensors.length);
    tensors.forEach((_, i) => library.view().setUint32(lists + 4 * i, this.#addresses[i], true));
    this.#addresses.push(lists);
  }

  /**
   * Runs the network once.
   *
   * @param {Object<string, ArrayLike> | Array<ArrayLike>} inputs by name, or in the order of `model.inputs`. Where sizes are
   *     open an input is also `{ data, shape }`, or an array with the property `shape`.
   * @returns {Object<string, TypedArray>} the outputs by name, in arrays of their own; they have the property `shape`.
   */
  run(inputs) {
    const { memory, nnefc_run } = this.#open().functions;
    const given = this.#ordered(inputs);
    if (this.#library.isOpen) return this.#runSized(given);
    this.#writeStrings(given);
    this.inputs.forEach((tensor, i) => {
      if (tensor.type !== "string") new tensor.array(memory.buffer, this.#addresses[i], length(tensor)).set(given[i]);
    });
    const lists = this.#addresses.at(-1);
    this.#library.check(nnefc_run(this.#session, lists, lists + 4 * this.inputs.length), this.#session);
    return Object.fromEntries(
      this.outputs.map((tensor, i) => {
        const address = this.#addresses[this.inputs.length + i];
        return [tensor.name, shaped(this.#library.elements(tensor, address, length(tensor)), [...tensor.shape])];
      }),
    );
  }

  /**
   * Allocates memory for all sizes up to these, for those that are not named up to the greatest that the network takes.
   *
   * @param {Object<string, number>} sizes by the names of `model.dimensions`.
   */
  reserve(sizes = {}) {
    const library = this.#open(), names = this.dimensions.map((dimension) => dimension.name);
    const unknown = Object.keys(sizes).find((name) => !names.includes(name));
    if (unknown !== undefined) throw new NnefcError(`the model has no dynamic dimension "${unknown}", but ${names.join(", ")}`);
    if (!library.isOpen) return;
    const list = library.allocate(8 * names.length);
    try {
      this.dimensions.forEach(({ name, most }, i) => library.view().setBigInt64(list + 8 * i, BigInt(sizes[name] ?? most), true));
      library.check(library.functions.nnefc_reserve(this.#session, list, 1), this.#session);
    } finally {
      library.functions.free(list);
    }
  }

  // With shapes.
  #runSized(given) {
    const library = this.#library, { nnefc_run_sized } = library.functions;
    const [inputs, outputs] = this.#written(given);
    library.check(nnefc_run_sized(this.#session, inputs, outputs), this.#session);
    return Object.fromEntries(
      this.outputs.map((tensor, i) => {
        const output = outputs + i * OUTPUT.size;
        const count = library.int64(output + OUTPUT.bytes) / elementBytes(tensor);
        const elements = library.elements(tensor, library.uint32(output + OUTPUT.data), count);
        const sizes = library.sizes(library.uint32(output + OUTPUT.shape), tensor.shape.length);
        return [tensor.name, shaped(elements, sizes.filter((size) => size >= 0))]; // NNEFC_NO_AXIS ends those of a lower rank
      }),
    );
  }

  // Writes the elements of the inputs to the first addresses, and to the last one the lists of nnefc_input and nnefc_output,
  // whose positions are returned, and the shapes.
  #written(given) {
    const library = this.#library, { memory } = library.functions;
    const shapes = given.map((array, i) => shapeOf(this.inputs[i], array));
    const arrays = given.map((array) => array.data ?? array);
    const outputBytes = OUTPUT.size * this.outputs.length, sizes = shapes.flat();
    const listBytes = INPUT.size * arrays.length + outputBytes + 8 * sizes.length;
    this.#makeRoom([...arrays.map((array, i) => array.length * elementBytes(this.inputs[i])), listBytes]);
    this.#writeStrings(arrays);
    const inputs = this.#addresses.at(-1), outputs = inputs + INPUT.size * arrays.length;
    const view = library.view(); // now that memory does not grow
    let shape = outputs + outputBytes;
    sizes.forEach((size, i) => view.setBigInt64(shape + 8 * i, BigInt(size), true));
    new Uint8Array(memory.buffer, outputs, outputBytes).fill(0); // no memory of the caller's
    arrays.forEach((array, i) => {
      const tensor = this.inputs[i];
      if (tensor.type !== "string") new tensor.array(memory.buffer, this.#addresses[i], array.length).set(array);
      const input = inputs + i * INPUT.size;
      view.setUint32(input + INPUT.data, this.#addresses[i], true);
      view.setBigUint64(input + INPUT.bytes, BigInt(array.length * elementBytes(tensor)), true);
      view.setUint32(input + INPUT.shape, shape, true);
      shape += 8 * shapes[i].length;
    });
    return [inputs, outputs];
  }

  // Writes the inputs that are strings; memory may grow.
  #writeStrings(arrays) {
    for (const address of this.#texts.splice(0)) this.#library.functions.free(address);
    this.inputs.forEach((tensor, i) => {
      if (tensor.type === "string") this.#texts.push(this.#library.writeStrings(this.#addresses[i], arrays[i]));
    });
  }

  // Makes the memory at each address as large as it has to be.
  #makeRoom(wanted) {
    wanted.forEach((bytes, i) => {
      if (bytes <= this.#room[i]) return;
      this.#library.functions.free(this.#addresses[i]);
      this.#room[i] = this.#addresses[i] = 0;
      this.#addresses[i] = this.#library.allocate(bytes);
      this.#room[i] = bytes;
    });
  }

  /** Brings the states back to their initial values. */
  reset() {
    this.#library.check(this.#open().functions.nnefc_reset(this.#session), this.#session);
  }

  /** Whether the module has the tokenizer of a language model. */
  get hasTokenizer() {
    return this.#library.functions.nnefc_tokenize !== undefined;
  }

  /** Whether the module renders conversations by the model's chat template. */
  get hasChat() {
    return this.#library.functions.nnefc_chat !== undefined;
  }

  /**
   * The tokens of a text, as numbers.
   *
   * @param {{beginAndEnd?: boolean, control?: boolean}} [options] `beginAndEnd`: with the tokens that the model has before and after a
   *     text (true); `control`: the texts of control tokens are these tokens, as in a rendered conversation (false).
   */
  tokenize(text, { beginAndEnd = true, control = false } = {}) {
    return tokensOf(this.#open(), text, beginAndEnd, control);
  }

  /** The text of tokens; bytes that are no UTF-8 become U+FFFD. `skipControl`: without control tokens (true). */
  detokenize(tokens, { skipControl = true } = {}) {
    return detokenized(this.#open(), tokens, skipControl);
  }

  /** What makes text of tokens that come one by one: `add(token)` returns what each adds, `end()` what is left. */
  textStream({ skipControl = true } = {}) {
    return new TextStream(this.#open(), skipControl);
  }

  /**
   * A conversation as the model reads it, to be tokenized with `{ beginAndEnd: false, control: true }`.
   *
   * @param {Array<Object>} messages as chat templates take them: `{ role: "user", content: "…" }`.
   * @param {{tools?: Array<Object>, addGenerationPrompt?: boolean, variables?: Object}} [options] functions that the model may call,
   *     whether what comes before its next reply is at the end (true), and further variables of the template.
   */
  chatText(messages, options = {}) {
    return chatText(this.#open(), messages, options);
  }

  /**
   * A further session of the same network, with states of its own; the trained values are shared. It has one thread while
   * another session has the workers: load the compiled module again for one with threads of its own.
   */
  session() {
    return new Model(this.#open());
  }

  /** Frees the session. Closing twice does nothing. */
  close() {
    if (this.#session === undefined) return;
    this.#library.check(this.#library.functions.nnefc_destroy(this.#session), this.#session);
    this.#session = undefined;
    this.#library.count(-1);
    for (const address of [...this.#addresses, ...this.#texts]) this.#library.functions.free(address);
  }

  #open() {
    if (this.#session === undefined) throw new NnefcError(`the model ${this.name} is closed: load it again`);
    return this.#library;
  }

  // The inputs in the model's order, after a look at their names, types and lengths.
  #ordered(inputs) {
    const names = this.inputs.map((tensor) => tensor.name);
    const byName = Array.isArray(inputs) ? Object.fromEntries(inputs.map((array, i) => [names[i], array])) : inputs;
    const unknown = Object.keys(byName).find((name) => !names.includes(name));
    if (unknown !== undefined) throw new NnefcError(`the model has no input "${unknown}", but ${names.join(", ")}`);
    return this.inputs.map((tensor) => {
      const value = byName[tensor.name];
      if (value === undefined) throw new NnefcError(`input "${tensor.name}" is missing`);
      const array = value.data ?? value;
      if (tensor.type === "string" && !(Array.isArray(array) && array.every((element) => typeof element === "string")))
        throw new NnefcError(`input "${tensor.name}" must be an array of strings`);
      if (ArrayBuffer.isView(array) && !(array instanceof tensor.array))
        throw new NnefcError(`input "${tensor.name}" is a ${array.constructor.name}, but the model has ${tensor.type}`);
      if (this.#library.isOpen) return value;
      if (array.length !== length(tensor))
        throw new NnefcError(`input "${tensor.name}" has ${array.length} elements, not those of [${tensor.shape}]`);
      return array;
    });
  }
}

function shaped(array, shape) {
  return Object.defineProperty(array, "shape", { value: shape });
}

// The shape of an input: that which it says, or, where one size alone is open, what follows from the number of elements.
function shapeOf(tensor, given) {
  const names = tensor.shape.filter((size) => typeof size === "string");
  const shape = given.shape ?? (names.length === 0 ? tensor.shape : undefined);
  if (shape === undefined && names.length > 1)
    throw new NnefcError(`input "${tensor.name}" needs a shape, { data, shape }, for ${names.join(" and ")} are open`);
  if (shape === undefined) {
    const known = tensor.shape.reduce((product, size) => product * (typeof size === "string" ? 1 : size), 1);
    const size = known > 0 ? Math.floor(given.length / known) : 0;
    return tensor.shape.map((extent) => (typeof extent === "string" ? size : extent));
  }
  if (shape.length !== tensor.shape.length || !shape.every(Number.isSafeInteger))
    throw new NnefcError(`input "${tensor.name}" has the shape [${shape}], but the model has [${tensor.shape}]`);
  return shape;
}

function length(tensor) {
  return tensor.bytes / elementBytes(tensor);
}

function elementBytes(tensor) {
  return tensor.array?.BYTES_PER_ELEMENT ?? STRING.size;
}
