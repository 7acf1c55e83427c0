// TensorFlow.js on what peers/tfjs_network.py wrote: the operations of a network, one after the other.

/**
 * @param tf TensorFlow.js with its backend, which is ready.
 * @param {string} file the list, as JSON; the constants are next to it.
 * @param {Function} read a file's bytes.
 * @param {Float32Array} input in ONNX's order.
 * @returns {Promise<Function>} a run: the result, in ONNX's order.
 */
export async function prepared(tf, file, read, input) {
  const [text, data] = await Promise.all([read(file), read(file.replace(/\.json$/, ".bin"))]);
  const program = JSON.parse(new TextDecoder().decode(text));
  const constants = new Map();
  for (const [name, { shape, offset }] of Object.entries(program.constants)) {
    const count = shape.reduce((a, b) => a * b, 1);
    constants.set(name, tf.tensor(new Float32Array(data, offset, count), shape));
  }
  const x = arranged(tf, tf.tensor(input, program.shape), [0, 2, 3, 1]);
  await x.data(); // images come with their channels last
  return () => {
    const result = tf.tidy(() => {
      const values = new Map([...constants, [program.input, x]]);
      for (const step of program.steps) {
        values.set(step.output, OPERATIONS[step.op](tf, step, ...step.inputs.map((name) => values.get(name))));
      }
      return arranged(tf, values.get(program.output), [0, 3, 1, 2]);
    });
    const found = result.dataSync();
    result.dispose();
    return found;
  };
}

const arranged = (tf, x, order) => (x.rank === 4 ? tf.transpose(x, order) : x);
const sides = ([top, left, bottom, right]) => [[0, 0], [top, bottom], [left, right], [0, 0]];

const OPERATIONS = {
  add: (tf, _, a, b) => tf.add(a, b),
  average: (tf, _, x) => tf.mean(x, [1, 2], true),
  clip: (tf, _, x, low, high) => tf.clipByValue(x, low.dataSync()[0], high.dataSync()[0]),
  concatenation: (tf, { axis }, ...parts) => tf.concat(parts, axis),
  convolution: (tf, { strides, pads, activation }, x, filter, bias) =>
    tf.fused.conv2d({ x, filter, bias, strides, pad: sides(pads), activation }),
  depthwise: (tf, { strides, pads, activation }, x, filter, bias) =>
    tf.fused.depthwiseConv2d({ x, filter, bias, strides, pad: sides(pads), activation }),
  divide: (tf, _, a, b) => tf.div(a, b),
  gelu: (tf, _, x) => {
    const inner = tf.mul(x, tf.add(tf.mul(tf.square(x), 0.7978845608 * 0.044715), 0.7978845608));
    return tf.mul(tf.mul(x, 0.5), tf.add(tf.tanh(inner), 1));
  },
  largest: (tf, { kernel_shape, strides, pads }, x) => {
    const padded = pads.some((count) => count > 0) ? tf.pad(x, sides(pads), -3e38) : x;
    return tf.maxPool(padded, kernel_shape, strides, "valid");
  },
  normalize: (tf, { epsilon }, x, scale, shift) => {
    const centred = tf.sub(x, tf.mean(x, -1, true));
    const factor = tf.rsqrt(tf.add(tf.mean(tf.square(centred), -1, true), epsilon));
    return tf.add(tf.mul(tf.mul(centred, factor), scale), shift);
  },
  product: (tf, _, a, b, bias) => {
    if (bias === undefined || b.rank !== 2) return bias ? tf.add(tf.matMul(a, b), bias) : tf.matMul(a, b);
    const rows = tf.reshape(a, [-1, a.shape.at(-1)]);
    return tf.reshape(tf.fused.matMul({ a: rows, b, bias }), [...a.shape.slice(0, -1), b.shape[1]]);
  },
  relu: (tf, _, x) => tf.relu(x),
  reshape: (tf, { shape }, x) => tf.reshape(x, shape),
  same: (_, __, x) => x,
  softmax: (tf, _, x) => tf.softmax(x),
  transpose: (tf, { perm }, x) => tf.transpose(x, perm),
};
