// The network @{name}: `const model = await load(); model.run({ input: new Float32Array(64) })`.
import { load as loadFirst } from "./nnefc.mjs";

export { NnefcError, supports } from "./nnefc.mjs";

const sources = [
@{sources},
];

/** Loads the network in the fastest form that this engine runs; options are those of nnefc's loader. */
export const load = (options) => loadFirst(sources, options);
