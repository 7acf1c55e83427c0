// Loads a network that nnefc compiled for wasm32-wasi, and runs it: in Node.js, Deno, Bun and browsers.
//
//     import { load } from "./nnefc.mjs";
//     const model = await load("digits.wasm");
//     const { probability } = model.run({ image: new Float32Array(64) });
//
// Tensors are typed arrays, dense and row-major; `model.inputs` and `model.outputs` tell their names, types and shapes.
// Arrays of float16 and bfloat16 hold bit patterns as Uint16Array, booleans are bytes, 64-bit integers are BigInts.
// Everything runs on the calling thread; a worker can load the network for itself.

const ABI_VERSION = 1;

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
]);

// Offsets in nnefc_description and nnefc_tensor, where pointers have 32 bits.
const DESCRIPTION = {
  abiVersion: 0, model: 8, target: 12, compiler: 16, inputs: 20, outputs: 24, states: 28,
  inputCount: 32, outputCount: 36, stateCount: 40, workspaceBytes: 56, constantBytes: 72,
};
const TENSOR = { name: 0, type: 4, rank: 8, shape: 12, bytes: 16, size: 24 };

/** What went wrong: a file that is no network, inputs that do not fit, a failure of the network's code. */
export class NnefcError extends Error {
  name = "NnefcError";
}

/**
 * Loads a network.
 *
 * @param {string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module} source a file's name (where there are files),
 *     an address, the file's bytes, or the compiled module.
 * @returns {Promise<Model>}
 */
export async function load(source) {
  const module = source instanceof WebAssembly.Module ? source : await compiled(await bytesOf(source));
  const [needed] = WebAssembly.Module.imports(module);
  if (needed !== undefined) throw new NnefcError(`the module needs ${needed.module}.${needed.name}: it is no network of nnefc`);
  const instance = await WebAssembly.instantiate(module, {});
  for (const name of ["memory", "malloc", "free", "nnefc_describe", "nnefc_create", "nnefc_run"])
    if (!(name in instance.exports)) throw new NnefcError(`the module has no ${name}: it is no network of nnefc`);
  instance.exports._initialize?.();
  return new Model(new Library(instance.exports));
}

async function compiled(bytes) {
  try {
    return await WebAssembly.compile(bytes);
  } catch (error) {
    throw new NnefcError(`no WebAssembly module that this engine can run: ${error.message}`, { cause: error });
  }
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  const isAddress = source instanceof URL ? source.protocol !== "file:" : /^(https?|blob|data):/.test(source);
  if (isAddress || typeof process === "undefined") {
    const answer = await fetch(source);
    if (!answer.ok) throw new NnefcError(`${source}: ${answer.status} ${answer.statusText}`);
    return answer.arrayBuffer();
  }
  const { readFile } = await import("node:fs/promises");
  return readFile(source);
}

// The functions and the memory of an instance.
class Library {
  constructor(functions) {
    this.functions = functions;
    const at = functions.nnefc_describe() >>> 0;
    const version = this.uint32(at + DESCRIPTION.abiVersion);
    if (version !== ABI_VERSION)
      throw new NnefcError(`the network has version ${version} of nnefc's interface, this loader knows ${ABI_VERSION}`);
    this.name = this.text(this.uint32(at + DESCRIPTION.model));
    this.target = this.text(this.uint32(at + DESCRIPTION.target));
    this.compiler = this.text(this.uint32(at + DESCRIPTION.compiler));
    this.inputs = this.tensors(at + DESCRIPTION.inputs, at + DESCRIPTION.inputCount);
    this.outputs = this.tensors(at + DESCRIPTION.outputs, at + DESCRIPTION.outputCount);
    this.states = this.tensors(at + DESCRIPTION.states, at + DESCRIPTION.stateCount);
    this.workspaceBytes = Number(this.view().getBigUint64(at + DESCRIPTION.workspaceBytes, true));
    this.constantBytes = Number(this.view().getBigUint64(at + DESCRIPTION.constantBytes, true));
  }

  // Anew each time: memory that has grown is another buffer.
  view() {
    return new DataView(this.functions.memory.buffer);
  }

  uint32(address) {
    return this.view().getUint32(address, true);
  }

  text(address) {
    const bytes = new Uint8Array(this.functions.memory.buffer, address);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }

  tensors(address, count) {
    const first = this.uint32(address);
    return Array.from({ length: this.uint32(count) }, (_, i) => this.tensor(first + i * TENSOR.size));
  }

  tensor(at) {
    const [type, array] = TYPES.get(this.uint32(at + TENSOR.type));
    const shape = this.uint32(at + TENSOR.shape);
    const extents = Array.from({ length: this.uint32(at + TENSOR.rank) }, (_, axis) =>
      Number(this.view().getBigInt64(shape + 8 * axis, true)),
    );
    const bytes = Number(this.view().getBigUint64(at + TENSOR.bytes, true));
    return Object.freeze({ name: this.text(this.uint32(at + TENSOR.name)), type, shape: extents, array, bytes });
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

/** A network with a session of its own. Made by `load`. */
export class Model {
  #library;
  #session;
  #addresses; // of the tensors inside, then of the two lists of them

  constructor(library) {
    this.#library = library;
    const made = library.allocate(4);
    try {
      library.check(library.functions.nnefc_create(0, made), 0);
      this.#session = library.uint32(made);
    } finally {
      library.functions.free(made);
    }
    this.name = library.name;
    this.target = library.target;
    this.compiler = library.compiler;
    this.inputs = library.inputs;
    this.outputs = library.outputs;
    this.states = library.states;
    this.workspaceBytes = library.workspaceBytes;
    this.constantBytes = library.constantBytes;
    const tensors = [...this.inputs, ...this.outputs];
    this.#addresses = tensors.map((tensor) => library.allocate(tensor.bytes));
    const lists = library.allocate(4 * tensors.length);
    tensors.forEach((_, i) => library.view().setUint32(lists + 4 * i, this.#addresses[i], true));
    this.#addresses.push(lists);
  }

  /**
   * Runs the network once.
   *
   * @param {Object<string, ArrayLike> | Array<ArrayLike>} inputs by name, or in the order of `model.inputs`.
   * @returns {Object<string, TypedArray>} the outputs by name, in arrays of their own.
   */
  run(inputs) {
    const { memory, nnefc_run } = this.#open().functions;
    const given = this.#ordered(inputs);
    this.inputs.forEach((tensor, i) => {
      const inside = new tensor.array(memory.buffer, this.#addresses[i], length(tensor));
      inside.set(given[i]);
    });
    const lists = this.#addresses.at(-1);
    this.#library.check(nnefc_run(this.#session, lists, lists + 4 * this.inputs.length), this.#session);
    return Object.fromEntries(
      this.outputs.map((tensor, i) => {
        const address = this.#addresses[this.inputs.length + i];
        return [tensor.name, new tensor.array(memory.buffer, address, length(tensor)).slice()];
      }),
    );
  }

  /** Brings the states back to their initial values. */
  reset() {
    this.#library.check(this.#open().functions.nnefc_reset(this.#session), this.#session);
  }

  /** A further session of the same network, with states of its own; the trained values are shared. */
  session() {
    return new Model(this.#open());
  }

  /** Frees the session. Closing twice does nothing. */
  close() {
    if (this.#session === undefined) return;
    this.#library.check(this.#library.functions.nnefc_destroy(this.#session), this.#session);
    this.#session = undefined;
    for (const address of this.#addresses) this.#library.functions.free(address);
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
      const array = byName[tensor.name];
      if (array === undefined) throw new NnefcError(`input "${tensor.name}" is missing`);
      if (ArrayBuffer.isView(array) && !(array instanceof tensor.array))
        throw new NnefcError(`input "${tensor.name}" is a ${array.constructor.name}, but the model has ${tensor.type}`);
      if (array.length !== length(tensor))
        throw new NnefcError(`input "${tensor.name}" has ${array.length} elements, not those of [${tensor.shape}]`);
      return array;
    });
  }
}

function length(tensor) {
  return tensor.bytes / tensor.array.BYTES_PER_ELEMENT;
}
