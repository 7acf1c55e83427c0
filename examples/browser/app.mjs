// The page: networks.json, written by build.py, says which networks there are.
import { load, supports } from "./nnefc.mjs";

const INK = 22; // width of a stroke, of 256 pixels
const SHOWN = 5;
const SIDE = 8; // of the images of digits that the network has learned from
const TIMING = 50; // milliseconds that runs are repeated for, at most
const REPEATS = 100;

const byId = (id) => document.getElementById(id);

async function main() {
  const networks = await (await fetch("networks.json")).json();
  const digits = await load(networks.digits.files);
  const ways = ["relaxed-simd", "atomics"].filter(supports).join(", ");
  const isolated = globalThis.crossOriginIsolated ? "memory is shared with workers" : "this page is not isolated: one thread";
  byId("engine").textContent = `This browser has ${ways || "SIMD128 alone"}; ${isolated}. Digits: ${digits.target}.`;
  drawDigits(byId("digits"), digits, networks.digits.samples ?? []);
  if (networks.images !== undefined) await takeImages(byId("images"), networks.images);
  else missImages(byId("images"));
  document.body.dataset.ready = "yes";
}

// Runs a network and shows the most probable classes.
function show(section, model, data, labels) {
  const began = performance.now();
  const [scores] = Object.values(model.run([data]));
  const first = performance.now() - began;
  const took = first > TIMING ? first : timeOf(() => model.run([data]));
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
  section.querySelector("output").textContent = `${took.toFixed(took < 1 ? 3 : 1)} ms a run, ${Math.round(1000 / took).toLocaleString("en")} runs a second`;
}

// Milliseconds of a run: the mean of several, for clocks of browsers are coarse.
function timeOf(run) {
  const began = performance.now();
  let count = 0, took = 0;
  do {
    run();
    count += 1;
    took = performance.now() - began;
  } while (took < TIMING && count < REPEATS);
  return Math.max(took, 1e-3) / count;
}

// A button for each sample, with a small image of it.
function addSamples(section, images, choose) {
  const row = section.querySelector(".samples");
  row.replaceChildren(
    ...images.map((image, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.ariaLabel = `sample ${index + 1}`;
      button.append(image);
      button.addEventListener("click", () => choose(index));
      return button;
    }),
  );
}

// 8 × 8 numbers from 0 to 1 as an image of grey squares.
function digitImage(pixels, side) {
  const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const pen = canvas.getContext("2d"), step = side / SIDE;
  pixels.forEach((value, i) => {
    pen.fillStyle = `rgb(255 255 255 / ${value})`;
    pen.fillRect((i % SIDE) * step, Math.floor(i / SIDE) * step, step, step);
  });
  return canvas;
}

function drawDigits(section, model, samples) {
  const canvas = section.querySelector(":scope > canvas"), pen = canvas.getContext("2d", { willReadFrequently: true });
  Object.assign(pen, { lineWidth: INK, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
  const labels = Array.from({ length: 10 }, (_, digit) => String(digit));
  let last;
  const position = ({ offsetX, offsetY }) => [(offsetX * canvas.width) / canvas.clientWidth, (offsetY * canvas.height) / canvas.clientHeight];
  const stroke = (event) => {
    pen.beginPath();
    pen.moveTo(...last);
    last = position(event);
    pen.lineTo(...last);
    pen.stroke();
    const pixels = digitPixels(pen.getImageData(0, 0, canvas.width, canvas.height));
    if (pixels !== undefined) show(section, model, pixels, labels);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (section.dataset.sample === "yes") clear();
    canvas.setPointerCapture(event.pointerId);
    last = position(event);
    stroke(event);
  });
  canvas.addEventListener("pointermove", (event) => last !== undefined && stroke(event));
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = undefined));
  const clear = () => {
    section.dataset.sample = "no";
    pen.clearRect(0, 0, canvas.width, canvas.height);
    section.querySelector(".results").replaceChildren();
    section.querySelector("output").textContent = "";
  };
  section.querySelector(".clear").addEventListener("click", clear);
  const pixels = samples.map((sample) => Float32Array.from(sample));
  const choose = (index) => {
    clear();
    section.dataset.sample = "yes";
    pen.drawImage(digitImage(pixels[index], canvas.width), 0, 0);
    show(section, model, pixels[index], labels);
  };
  addSamples(section, pixels.map((sample) => digitImage(sample, 40)), choose);
  if (samples.length > 0) choose(0);
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
  const canvas = section.querySelector(":scope > canvas"), input = section.querySelector("input");
  const [, channels, height, width] = model.inputs[0].shape;
  Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const classify = (source, w0, h0) => {
    const scale = Math.max(width / w0, height / h0);
    const [w, h] = [w0 * scale, h0 * scale];
    pen.drawImage(source, (width - w) / 2, (height - h) / 2, w, h);
    show(section, model, imagePixels(pen.getImageData(0, 0, width, height), channels, network), network.labels);
  };
  const read = async (file) => {
    try {
      const bitmap = await createImageBitmap(file);
      stop();
      classify(bitmap, bitmap.width, bitmap.height);
    } catch (error) {
      fail(section.querySelector("output"), error);
    }
  };
  const stop = useCamera(section, (video) => classify(video, video.videoWidth, video.videoHeight));
  input.disabled = false;
  input.addEventListener("change", () => input.files.length > 0 && read(input.files[0]));
  section.addEventListener("dragover", (event) => event.preventDefault());
  section.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length > 0) read(event.dataTransfer.files[0]);
  });
  const samples = network.samples ?? [];
  const choose = async (index) => read(await (await fetch(samples[index])).blob());
  addSamples(section, samples.map((source) => Object.assign(new Image(), { src: source, height: 56 })), choose);
  if (samples.length > 0) await choose(0);
}

// A button that starts and ends the camera, whose frames are given to `classify`; returns what ends it.
function useCamera(section, classify) {
  const button = section.querySelector(".camera"), video = document.createElement("video");
  let stream;
  const stop = () => {
    stream?.getTracks().forEach((track) => track.stop());
    stream = undefined;
    button.textContent = "Use the camera";
  };
  const frame = () => {
    if (stream === undefined) return;
    if (video.videoWidth > 0) classify(video);
    requestAnimationFrame(frame);
  };
  button.hidden = navigator.mediaDevices?.getUserMedia === undefined; // as on pages without HTTPS
  button.addEventListener("click", async () => {
    if (stream !== undefined) return stop();
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: true });
      video.srcObject = stream;
      await video.play();
      button.textContent = "Stop the camera";
      frame();
    } catch (error) {
      stop();
      fail(section.querySelector("output"), error);
    }
  });
  return stop;
}

function missImages(section) {
  section.querySelector(".what").textContent = "Build the page with --images MODEL --labels FILE for this.";
  for (const element of section.querySelectorAll("input, canvas, button")) element.hidden = true;
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
