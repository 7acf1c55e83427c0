// Runs a network compiled for wasm32-wasi and prints the largest elements of each output.
//
//     node classify.mjs digits.wasm              all inputs are zeros
//     node classify.mjs digits.wasm image.f32    the first input from a file: its elements as they lie in memory
//     node classify.mjs digits.wasm image.f32 10 the ten largest instead of five
import { readFile } from "node:fs/promises";
import { argv, exit } from "node:process";

import { load } from "../../targets/runtime/nnefc.mjs";

async function elements(path, tensor) {
  const bytes = await readFile(path);
  if (bytes.length !== tensor.bytes) throw new Error(`${path} has ${bytes.length} bytes, "${tensor.name}" ${tensor.bytes}`);
  return new tensor.array(new Uint8Array(bytes).buffer); // a copy, aligned to elements of any size
}

async function main(file, image, wanted = "5") {
  const model = await load(file);
  console.log(`${model.name}, compiled for ${model.target} by ${model.compiler}`);
  const inputs = model.inputs.map((tensor) => new tensor.array(tensor.bytes / tensor.array.BYTES_PER_ELEMENT));
  if (image !== undefined) inputs[0] = await elements(image, model.inputs[0]);
  for (const [name, values] of Object.entries(model.run(inputs))) {
    console.log(`${name}:`);
    const largest = Array.from(values, (value, index) => ({ index, value: Number(value) }))
      .filter(({ value }) => !Number.isNaN(value))
      .sort((a, b) => b.value - a.value || a.index - b.index);
    for (const { index, value } of largest.slice(0, Number(wanted)))
      console.log(`  ${String(index).padStart(6)}  ${Number(value.toPrecision(6))}`);
  }
  model.close();
}

if (argv.length < 3 || argv.length > 5) {
  console.error("usage: node classify.mjs NETWORK.wasm [FILE [COUNT]]");
  exit(2);
}
try {
  await main(...argv.slice(2));
} catch (error) {
  console.error(error.message);
  exit(1);
}
