// Types of index.mjs.
import { load as loadFirst, type Model } from "./nnefc.mjs";

export { NnefcError, supports, type Model } from "./nnefc.mjs";

/** Loads the network in the fastest form that this engine runs. */
export function load(options?: Parameters<typeof loadFirst>[1]): Promise<Model>;
