// One engine on one network, in Node.js or a browser: how long the first result takes, and runs after it.

const WARM_RUNS = 10; // engines compile again what has run for long, next to the runs that follow

/**
 * @param job `engine`, `file`: its model, `loader`: where the engine's module is, `threads`, `seconds` of runs, `shape` of the
 *     one input, float32.
 * @returns {Promise<Object>} milliseconds: `loading` of the engine itself, `first` from the model's file to its first result,
 *     `times` of runs; and the first values of the result.
 */
export async function measured(job) {
  const input = numbers(job.shape.reduce((a, b) => a * b, 1));
  const begun = performance.now();
  const prepare = await ENGINES[job.engine](job);
  const loaded = performance.now();
  const run = await prepare(input);
  const result = await run();
  const first = performance.now() - loaded;
  for (let i = 1; i < WARM_RUNS; i++) await run();
  const times = [], end = performance.now() + 1000 * job.seconds;
  while (performance.now() < end) {
    const start = performance.now();
    await run();
    times.push(performance.now() - start);
  }
  return { loading: loaded - begun, first, times, result: Array.from(result.slice(0, 1000)) };
}

const ENGINES = {
  async nnefc({ loader, file, threads }) {
    const { load } = await import(loader);
    return async (input) => {
      const model = await load(file, { threads });
      return () => Object.values(model.run([input]))[0];
    };
  },

  async onnxruntime({ loader, file, threads, shape }) {
    const ort = await import(loader);
    ort.env.wasm.numThreads = threads;
    ort.env.logLevel = "error";
    if (globalThis.document !== undefined) ort.env.wasm.wasmPaths = new URL(".", new URL(loader, document.baseURI)).href;
    return async (input) => {
      const session = await ort.InferenceSession.create(file, { executionProviders: ["wasm"] });
      const feeds = { [session.inputNames[0]]: new ort.Tensor("float32", input, shape) };
      return async () => Object.values(await session.run(feeds))[0].data;
    };
  },

  async tfjs({ loader, file, threads }) {
    const isPage = globalThis.document !== undefined;
    const ending = isPage ? "min.js" : "node.js";
    const parts = [`tfjs-core/dist/tf-core.${ending}`, `tfjs-backend-wasm/dist/tf-backend-wasm.${ending}`];
    const [tf, backend] = await (isPage ? scripts : modules)(parts.map((part) => `${loader}/${part}`));
    const folder = `${loader}/tfjs-backend-wasm/dist/`;
    backend.setWasmPaths(isPage ? folder : (await import("node:url")).fileURLToPath(folder));
    if (isPage) backend.setThreadsCount(threads);
    await tf.setBackend("wasm");
    const { prepared } = await import("./tfjs.mjs");
    return (input) => prepared(tf, file, isPage ? fetched : readFile, input);
  },
};

// In pages alone: it loads its module by a script. Its models have channels last.
ENGINES.litert = async ({ loader, file, threads, shape }) => {
  const litert = await import(`${loader}/core/dist/index.js`);
  await litert.loadLiteRt(`${loader}/core/wasm/`, { threads: threads > 1 });
  return async (input) => {
    const options = { accelerator: "wasm", cpuOptions: { numThreads: threads } };
    const model = await litert.loadAndCompile(new URL(file, document.baseURI).href, options);
    const [detail] = model.getInputDetails();
    const dimensions = Array.from(detail.shape);
    const last = shape.length === 4 && dimensions[3] === shape[1] ? channelsLast(input, shape) : input;
    const values = detail.dtype === "float32" ? last : Int8Array.from(last, (x) => Math.round(127 * x));
    return async () => {
      const given = new litert.Tensor(values, dimensions);
      const [made] = await model.run(given);
      const found = (await made.data?.()) ?? made.toTypedArray();
      const result = found.slice();
      given.delete();
      made.delete();
      return result;
    };
  };
};

function channelsLast(input, [, channels, height, width]) {
  const area = height * width;
  return Float32Array.from(input, (_, i) => input[(i % channels) * area + Math.floor(i / channels)]);
}

async function modules(urls) {
  const found = [];
  for (const url of urls) found.push((await import(url)).default);
  return found;
}

async function scripts(urls) {
  for (const url of urls) {
    await new Promise((resolve, reject) => {
      const script = Object.assign(document.createElement("script"), { src: url, onload: resolve, onerror: reject });
      document.head.append(script);
    });
  }
  return [globalThis.tf, globalThis.tf.wasm];
}

const fetched = async (url) => (await fetch(url)).arrayBuffer();

async function readFile(name) {
  const bytes = await (await import("node:fs/promises")).readFile(name);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
}

// The same numbers between -1 and 1 for all.
function numbers(count) {
  let state = 1;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}
