// Modules of WebAssembly for nnefc.mjs: how they come here, what the engine can run, and threads.
//
// Only programs can start threads, as workers. A module that is made for them imports its memory, which the workers' instances
// share; each worker is told which of the threads it is that the module has a record of, and runs it until it is ended. Where
// memory cannot be shared with workers, as in pages that are not isolated from others, there is one thread.

const MOST_THREADS = 256; // of a session
const MEMORY_SECTION = "nnefc.memory"; // pages at first and at most, written by nnefc

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

/** What went wrong: a file that is no network, inputs that do not fit, a failure of the network's code. */
export class NnefcError extends Error {
  name = "NnefcError";
}

/**
 * Whether this engine runs modules for targets with a feature.
 *
 * @param {"relaxed-simd" | "atomics"} feature of `nnefc targets`.
 */
export function supports(feature) {
  if (!(feature in PROBES)) throw new NnefcError(`unknown feature "${feature}": say one of ${Object.keys(PROBES).join(", ")}`);
  return WebAssembly.validate(new Uint8Array(PROBES[feature]));
}

/** The first of the sources whose needs this engine meets. */
export function chosen(sources) {
  for (const source of Array.isArray(sources) ? sources : [sources]) {
    if (source?.source === undefined) return source;
    if ([source.needs ?? []].flat().every(supports)) return source.source;
  }
  throw new NnefcError("this engine lacks what each of the modules needs: add one for wasm32-wasi to the list");
}

/** The module that a source stands for, compiled while it arrives where that is possible. */
export async function moduleOf(source) {
  if (source instanceof WebAssembly.Module) return source;
  const content = await contentOf(source);
  try {
    if (isBytes(content)) return await WebAssembly.compile(content);
    const streams = content.headers.get("Content-Type")?.startsWith("application/wasm");
    return await (streams ? WebAssembly.compileStreaming(content) : WebAssembly.compile(await content.arrayBuffer()));
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new NnefcError(`no WebAssembly module that this engine can run: ${error.message}`, { cause: error });
  }
}

// Bytes, or a response that has begun. Node.js takes tens of milliseconds when a program first says `Response` or `fetch`.
async function contentOf(source) {
  if (isBytes(source)) return source;
  const isFile = source instanceof URL ? source.protocol === "file:" : typeof source === "string" && !/^(https?|blob|data):/.test(source);
  if (isFile && typeof process !== "undefined") return fileContent(source);
  const answer = source instanceof Response ? source : await fetch(source);
  if (!answer.ok) throw new NnefcError(`${answer.url || source}: ${answer.status} ${answer.statusText}`);
  return answer;
}

function isBytes(content) {
  return content instanceof ArrayBuffer || ArrayBuffer.isView(content);
}

// At once: readFile takes many small parts, which is slower than a compiler that skips trained values.
async function fileContent(name) {
  const { open } = await import("node:fs/promises");
  const file = await open(name);
  try {
    const status = await file.stat();
    if (!status.isFile() || status.size === 0) return await file.readFile(); // a pipe, or /proc: its end tells the size
    const bytes = new Uint8Array(status.size);
    for (let at = 0; at < bytes.length; ) {
      const { bytesRead } = await file.read(bytes, at, bytes.length - at, at);
      if (bytesRead === 0) throw new NnefcError(`${name} ends after ${at} of ${bytes.length} bytes`);
      at += bytesRead;
    }
    return bytes;
  } finally {
    await file.close();
  }
}

/**
 * An instance of a module, with the threads that it may use.
 *
 * @param {WebAssembly.Module} module
 * @param {number} [threads] at most; by default as many as the machine has processors.
 * @returns {Promise<{functions: Object, end: function(): void}>} its exports with its memory, and what ends the workers.
 */
export async function instantiated(module, threads) {
  if (threads !== undefined && !(Number.isInteger(threads) && threads >= 1 && threads <= MOST_THREADS))
    throw new NnefcError(`threads is ${threads}, not a number from 1 to ${MOST_THREADS}`);
  const [note] = WebAssembly.Module.customSections(module, MEMORY_SECTION);
  const memory = note === undefined ? undefined : sharedMemory(new DataView(note));
  const strange = WebAssembly.Module.imports(module).find(({ kind }) => memory === undefined || kind !== "memory");
  if (strange !== undefined) throw new NnefcError(`the module needs ${strange.module}.${strange.name}: it is no network of nnefc`);
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  const functions = memory === undefined ? exports : { ...exports, memory };
  for (const name of ["memory", "malloc", "free", "nnefc_describe", "nnefc_create", "nnefc_run"])
    if (!(name in functions)) throw new NnefcError(`the module has no ${name}: it is no network of nnefc`);
  functions._initialize?.();
  if (memory === undefined) return { functions, end() {} };
  functions.nnefc_may_wait(mayWait(memory) ? 1 : 0);
  const workers = await lend(module, functions, (threads ?? (await processors())) - 1);
  return { functions, end: () => workers.forEach((worker) => worker.terminate()) };
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
  const os = await import("node:os");
  return os.availableParallelism?.() ?? os.cpus().length;
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

// A worker that runs a thread, when it says so. One that does not is ended: nobody else knows of it.
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
  const { Worker } = await import("node:worker_threads");
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
