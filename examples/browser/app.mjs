// The page: networks.json, written by build.py, says which networks there are.
import { load, supports } from "./nnefc.mjs";

const INK = 22; // width of a stroke, of 256 pixels
const SHOWN = 5;
const SIDE = 8; // of the images of digits that the network has learned from

const byId = (id) => document.getElementById(id);

async function main() {
  const networks = await (await fetch("networks.json")).json();
  const digits = await load(networks.digits.files);
  const ways = ["relaxed-simd", "atomics"].filter(supports).join(", ");
  const isolated = globalThis.crossOriginIsolated ? "memory is shared with workers" : "this page is not isolated: one thread";
  byId("engine").textContent = `This browser has ${ways || "SIMD128 alone"}; ${isolated}. Digits: ${digits.target}.`;
  drawDigits(byId("digits"), digits);
  if (networks.images !== undefined) await takeImages(byId("images"), networks.images);
  else missImages(byId("images"));
  document.body.dataset.ready = "yes";
}

// Runs a network and shows the most probable classes.
function show(section, model, data, labels) {
  const began = performance.now();
  const [scores] = Object.values(model.run([data]));
  const took = performance.now() - began;
  const best = Array.from(scores, (value, index) => ({ value, label: labels[index] ?? `class ${index}` }))
    .sort((a, b) => b.value - a.value)
    .slice(0, SHOWN);
  section.querySelector(".results").replaceChildren(
    ...best.map(({ value, label }) => {
      const item = document.createElement("li"), name = document.createElement("span"), share = document.createElement("span");
      name.textContent = label;
      share.textContent = `${(100 * value).toFixed(1)} %`;
      item.append(name, Object.assign(document.createElement("meter"), { value }), share);
      return item;
    }),
  );
  section.querySelector("output").textContent = `${took.toFixed(took < 1 ? 2 : 1)} ms`;
}

function drawDigits(section, model) {
  const canvas = section.querySelector("canvas"), pen = canvas.getContext("2d", { willReadFrequently: true });
  Object.assign(pen, { lineWidth: INK, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
  const labels = Array.from({ length: 10 }, (_, digit) => String(digit));
  let last;
  const place = ({ offsetX, offsetY }) => [(offsetX * canvas.width) / canvas.clientWidth, (offsetY * canvas.height) / canvas.clientHeight];
  const stroke = (event) => {
    pen.beginPath();
    pen.moveTo(...last);
    last = place(event);
    pen.lineTo(...last);
    pen.stroke();
    const pixels = digitPixels(pen.getImageData(0, 0, canvas.width, canvas.height));
    if (pixels !== undefined) show(section, model, pixels, labels);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    stroke(event);
  });
  canvas.addEventListener("pointermove", (event) => last !== undefined && stroke(event));
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = undefined));
  section.querySelector("button").addEventListener("click", () => {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    section.querySelector(".results").replaceChildren();
    section.querySelector("output").textContent = "";
  });
}

// What is drawn, its middle in the middle, as 8 × 8 numbers from 0 to 1: how much of each square is ink. Undefined for no ink.
function digitPixels({ data, width, height }) {
  const inked = (x, y) => x >= 0 && y >= 0 && x < width && y < height && data[4 * (y * width + x) + 3] > 127;
  let left = width, top = height, right = -1, bottom = -1;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (inked(x, y)) [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
  if (right < 0) return undefined;
  const side = Math.max(right - left, bottom - top) + 1;
  const x0 = (left + right + 1 - side) / 2, y0 = (top + bottom + 1 - side) / 2;
  const points = 16; // of a square and an axis
  const step = side / SIDE / points;
  return Float32Array.from({ length: SIDE * SIDE }, (_, i) => {
    let ink = 0;
    for (let y = 0; y < points; y++)
      for (let x = 0; x < points; x++)
        ink += inked(Math.floor(x0 + ((i % SIDE) * points + x + 0.5) * step), Math.floor(y0 + (Math.floor(i / SIDE) * points + y + 0.5) * step));
    return ink / points ** 2;
  });
}

async function takeImages(section, network) {
  const model = await load(network.files);
  const canvas = section.querySelector("canvas"), input = section.querySelector("input");
  const [, channels, height, width] = model.inputs[0].shape;
  Object.assign(canvas, { width, height });
  const classify = async (file) => {
    try {
      const bitmap = await createImageBitmap(file);
      const pen = canvas.getContext("2d", { willReadFrequently: true });
      const scale = Math.max(width / bitmap.width, height / bitmap.height);
      const [w, h] = [bitmap.width * scale, bitmap.height * scale];
      pen.drawImage(bitmap, (width - w) / 2, (height - h) / 2, w, h);
      show(section, model, imagePixels(pen.getImageData(0, 0, width, height), channels, network), network.labels);
    } catch (error) {
      fail(section.querySelector("output"), error);
    }
  };
  input.disabled = false;
  input.addEventListener("change", () => input.files.length > 0 && classify(input.files[0]));
  section.addEventListener("dragover", (event) => event.preventDefault());
  section.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length > 0) classify(event.dataTransfer.files[0]);
  });
}

function missImages(section) {
  section.querySelector(".what").textContent = "Build the page with --images MODEL --labels FILE for this.";
  for (const element of section.querySelectorAll("input, canvas")) element.hidden = true;
}

// The channels one after the other, each (value - mean) / deviation.
function imagePixels({ data, width, height }, channels, { mean, deviation }) {
  const plane = width * height, pixels = new Float32Array(channels * plane);
  for (let c = 0; c < channels; c++)
    for (let i = 0; i < plane; i++) pixels[c * plane + i] = (data[4 * i + c] / 255 - mean[c]) / deviation[c];
  return pixels;
}

function fail(element, error) {
  element.className = "error";
  element.textContent = error.message;
}

main().catch((error) => {
  fail(byId("engine"), error);
  document.body.dataset.ready = "failed";
});
