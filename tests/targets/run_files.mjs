// Runs a network on inputs from files: run_files.mjs NETWORK INPUT... OUTPUT...
// Of a network with dynamic sizes an input is FILE@2x3, with its shape, and the outputs' shapes are printed, a line each.
import { readFileSync, writeFileSync } from "node:fs";
import { argv } from "node:process";

import { load } from "../../targets/runtime/nnefc.mjs";

const [network, ...files] = argv.slice(2);
const model = await load(network);
const inputs = model.inputs.map((tensor, i) => {
  const [path, shape] = files[i].split("@");
  const data = new tensor.array(new Uint8Array(readFileSync(path)).buffer);
  return shape === undefined ? data : { data, shape: shape === "" ? [] : shape.split("x").map(Number) };
});
const outputs = model.run(inputs);
if (files.some((file) => file.includes("@"))) for (const { name } of model.outputs) console.log(outputs[name].shape.join(" "));
model.outputs.forEach((tensor, i) => writeFileSync(files[inputs.length + i], outputs[tensor.name]));
