// Runs a network on inputs from files: run_files.mjs NETWORK INPUT... OUTPUT...
import { readFileSync, writeFileSync } from "node:fs";
import { argv } from "node:process";

import { load } from "../../targets/runtime/nnefc.mjs";

const [network, ...files] = argv.slice(2);
const model = await load(network);
const inputs = model.inputs.map((tensor, i) => new tensor.array(new Uint8Array(readFileSync(files[i])).buffer));
const outputs = model.run(inputs);
model.outputs.forEach((tensor, i) => writeFileSync(files[inputs.length + i], outputs[tensor.name]));
