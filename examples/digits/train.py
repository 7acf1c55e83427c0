"""Train the digits network and write it as NNEF. Needs scikit-learn for the images: pip install -e .[train]

    python examples/digits/train.py            # about a minute; writes model.nnef/ and test.npz next to this file

The images are scikit-learn's `load_digits`: 1,797 handwritten digits of 8 x 8 pixels, values 0 to 16. Every fifth
image of each digit, in a seeded order, is held back: training never sees those, and nothing was chosen by them.
The network and Adam are written out in NumPy. Everything is seeded, so a second run writes the same files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnefc.frontends.nnef.files.tensor_file import write_tensor

HERE = Path(__file__).parent
SEED = 0
HELD_BACK = 5  # one image in five
EPOCHS = 40
BATCH = 32
LEARNING_RATE = 2e-3
CHANNELS = (16, 32)
EPSILON = 1e-5  # of the batch normalizations
MOMENTUM = 0.05  # of their running statistics

Parameters = dict[str, np.ndarray]

DOCUMENT = """\
version 1.0;

# Handwritten digits, 8 x 8 pixels with values from 0 to 1, to the probabilities of 0 to 9.
# Trained by train.py.
graph digits(image) -> (probability)
{{
    image = external<scalar>(shape = [1, 1, 8, 8]);

    filter1 = variable<scalar>(shape = [{c1}, 1, 3, 3], label = 'conv1/filter');
    mean1 = variable<scalar>(shape = [1, {c1}], label = 'norm1/mean');
    variance1 = variable<scalar>(shape = [1, {c1}], label = 'norm1/variance');
    offset1 = variable<scalar>(shape = [1, {c1}], label = 'norm1/offset');
    scale1 = variable<scalar>(shape = [1, {c1}], label = 'norm1/scale');
    conv1 = conv(image, filter1, padding = [(1, 1), (1, 1)]);
    norm1 = batch_normalization(conv1, mean1, variance1, offset1, scale1, epsilon = {epsilon});
    relu1 = relu(norm1);

    filter2 = variable<scalar>(shape = [{c2}, {c1}, 3, 3], label = 'conv2/filter');
    mean2 = variable<scalar>(shape = [1, {c2}], label = 'norm2/mean');
    variance2 = variable<scalar>(shape = [1, {c2}], label = 'norm2/variance');
    offset2 = variable<scalar>(shape = [1, {c2}], label = 'norm2/offset');
    scale2 = variable<scalar>(shape = [1, {c2}], label = 'norm2/scale');
    conv2 = conv(relu1, filter2, padding = [(1, 1), (1, 1)]);
    norm2 = batch_normalization(conv2, mean2, variance2, offset2, scale2, epsilon = {epsilon});
    relu2 = relu(norm2);
    pool2 = max_pool(relu2, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0)],
                     border = 'ignore');

    filter3 = variable<scalar>(shape = [10, {features}], label = 'linear3/filter');
    bias3 = variable<scalar>(shape = [1, 10], label = 'linear3/bias');
    flat = reshape(pool2, shape = [0, -1]);
    score = linear(flat, filter3, bias3);
    probability = softmax(score);
}}
"""


def split(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images uint8 [n, 1, 8, 8] and labels int64 [n]: those to learn from, then those held back."""
    from sklearn.datasets import load_digits  # here, so that the arithmetic can be tested without scikit-learn

    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    held = np.zeros(len(labels), bool)
    for digit in range(10):
        held[rng.permutation(np.flatnonzero(labels == digit))[::HELD_BACK]] = True
    return images[~held], labels[~held], images[held], labels[held]


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image [n, 1, 8, 8] moved by at most one pixel each way, so that the network learns not to mind."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (8, 8), axis=(2, 3))  # [n, 1, 3, 3, 8, 8]
    move = rng.integers(0, 3, (2, len(images)))
    return windows[np.arange(len(images)), :, move[0], move[1]]


class Convolution:
    """3 x 3, zero padding of one pixel, no bias."""

    def __init__(self, filter: np.ndarray) -> None:
        self.filter = filter

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
        result: np.ndarray = np.einsum("ncyxij,ocij->noyx", self.windows, self.filter, optimize=True)
        return result

    def backward(self, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gradients of the input and of the filter."""
        of_filter = np.einsum("ncyxij,noyx->ocij", self.windows, gradient, optimize=True)
        flipped = Convolution(self.filter[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
        return flipped.forward(gradient), of_filter


class Normalization:
    """Batch normalization over everything but the channel; keeps running statistics for later."""

    def __init__(self, scale: np.ndarray, offset: np.ndarray) -> None:
        self.scale, self.offset = scale, offset

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.mean, self.variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        self.root = np.sqrt(self.variance + EPSILON)
        self.normal = (x - self.mean) / self.root
        result: np.ndarray = self.normal * self.scale[..., None, None] + self.offset[..., None, None]
        return result

    def backward(self, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The gradients of the input, the scale and the offset."""
        of_scale = (gradient * self.normal).sum((0, 2, 3))[None]
        of_offset = gradient.sum((0, 2, 3))[None]
        g = gradient * self.scale[..., None, None]
        centred = g - g.mean((0, 2, 3), keepdims=True)
        of_input = (centred - self.normal * (g * self.normal).mean((0, 2, 3), keepdims=True)) / self.root
        return of_input, of_scale, of_offset


def max_pool(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2 x 2 by steps of 2; also where in each window the largest value was, as a mask that sums to one."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    largest = blocks.max((3, 5), keepdims=True)
    mask = (blocks == largest).astype(x.dtype)
    return largest.reshape(n, c, h // 2, w // 2), mask / mask.sum((3, 5), keepdims=True)


def softmax(x: np.ndarray) -> np.ndarray:
    e: np.ndarray = np.exp(x - x.max(1, keepdims=True))
    e /= e.sum(1, keepdims=True)
    return e


def initial(rng: np.random.Generator) -> tuple[Parameters, Parameters]:
    """He-scaled parameters that are learned, and the running statistics that are measured."""
    first, second = CHANNELS
    features = second * 4 * 4

    def filters(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    learned = {"conv1/filter": filters(first, 1, 3, 3), "conv2/filter": filters(second, first, 3, 3)}
    learned |= {"linear3/filter": filters(10, features), "linear3/bias": np.zeros((1, 10), np.float32)}
    measured: Parameters = {}
    for layer, channels in (("norm1", first), ("norm2", second)):
        learned[f"{layer}/scale"] = np.ones((1, channels), np.float32)
        learned[f"{layer}/offset"] = np.zeros((1, channels), np.float32)
        measured[f"{layer}/mean"] = np.zeros((1, channels), np.float32)
        measured[f"{layer}/variance"] = np.ones((1, channels), np.float32)
    return learned, measured


def step(x: np.ndarray, labels: np.ndarray, p: Parameters, measured: Parameters) -> tuple[float, Parameters]:
    """The mean cross-entropy of one batch and its gradient; moves the running statistics a little."""
    conv1, conv2 = Convolution(p["conv1/filter"]), Convolution(p["conv2/filter"])
    norm1 = Normalization(p["norm1/scale"], p["norm1/offset"])
    norm2 = Normalization(p["norm2/scale"], p["norm2/offset"])

    active1 = norm1.forward(conv1.forward(x))
    active2 = norm2.forward(conv2.forward(np.maximum(active1, 0)))
    pooled, mask = max_pool(np.maximum(active2, 0))
    flat = pooled.reshape(len(x), -1)
    answer = softmax(flat @ p["linear3/filter"].T + p["linear3/bias"])
    loss = -float(np.log(answer[np.arange(len(x)), labels] + 1e-12).mean())

    g: Parameters = {}
    error = (answer - np.eye(10, dtype=np.float32)[labels]) / len(x)
    g["linear3/filter"], g["linear3/bias"] = error.T @ flat, error.sum(0, keepdims=True)
    back = (error @ p["linear3/filter"]).reshape(pooled.shape)
    back = (mask * back[:, :, :, None, :, None]).reshape(active2.shape) * (active2 > 0)
    back, g["norm2/scale"], g["norm2/offset"] = norm2.backward(back)
    back, g["conv2/filter"] = conv2.backward(back)
    back, g["norm1/scale"], g["norm1/offset"] = norm1.backward(back * (active1 > 0))
    _, g["conv1/filter"] = conv1.backward(back)

    for layer, norm in (("norm1", norm1), ("norm2", norm2)):
        for name, value in (("mean", norm.mean), ("variance", norm.variance)):
            running = measured[f"{layer}/{name}"]
            running += MOMENTUM * (value.reshape(running.shape) - running)
    return loss, g


class Adam:
    """Kingma and Ba, 2015, with the weights drawn towards zero a little (Loshchilov and Hutter, 2019)."""

    def __init__(self, parameters: Parameters, decay: float = 1e-2) -> None:
        self.parameters, self.decay, self.count = parameters, decay, 0
        self.first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: np.zeros_like(value) for name, value in parameters.items()}

    def update(self, gradient: Parameters, rate: float) -> None:
        self.count += 1
        for name, value in self.parameters.items():
            self.first[name] += 0.1 * (gradient[name] - self.first[name])
            self.second[name] += 0.001 * (gradient[name] ** 2 - self.second[name])
            first = self.first[name] / (1 - 0.9**self.count)
            second = self.second[name] / (1 - 0.999**self.count)
            value -= (rate * (first / (np.sqrt(second) + 1e-8) + self.decay * value)).astype(np.float32)


def batches(count: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    order = rng.permutation(count)
    yield from (order[start : start + BATCH] for start in range(0, count - BATCH + 1, BATCH))


def train(images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Parameters:
    """All trained values, by label."""
    learned, measured = initial(rng)
    optimizer = Adam(learned)
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        losses = []
        for chosen in batches(len(labels), rng):
            x = (shifted(images[chosen], rng) / np.float32(16)).astype(np.float32)
            loss, gradient = step(x, labels[chosen], learned, measured)
            optimizer.update(gradient, rate)
            losses.append(loss)
        print(f"epoch {epoch + 1:2} of {EPOCHS}: loss {np.mean(losses):.4f}", flush=True)
    return learned | measured


def classify(images: np.ndarray, p: Parameters) -> np.ndarray:
    """The probabilities [n, 10] of images [n, 1, 8, 8], as the compiled network computes them."""

    def normalize(x: np.ndarray, layer: str) -> np.ndarray:
        mean, variance, scale, offset = (
            p[f"{layer}/{name}"][..., None, None] for name in ("mean", "variance", "scale", "offset")
        )
        return (x - mean) / np.sqrt(variance + EPSILON) * scale + offset

    x = images.astype(np.float32) / np.float32(16)
    x = np.maximum(normalize(Convolution(p["conv1/filter"]).forward(x), "norm1"), 0)
    x = np.maximum(normalize(Convolution(p["conv2/filter"]).forward(x), "norm2"), 0)
    x = max_pool(x)[0].reshape(len(images), -1)
    return softmax(x @ p["linear3/filter"].T + p["linear3/bias"])


def write(folder: Path, values: Parameters) -> None:
    """The network as an NNEF folder: graph.nnef and one tensor file a variable."""
    folder.mkdir(exist_ok=True)
    first, second = CHANNELS
    text = DOCUMENT.format(c1=first, c2=second, features=second * 16, epsilon=f"{EPSILON:.5f}")
    (folder / "graph.nnef").write_text(text)
    for label, value in values.items():
        path = folder / f"{label}.dat"
        path.parent.mkdir(exist_ok=True)
        write_tensor(path, value.astype(np.float32))


def main() -> int:
    rng = np.random.default_rng(SEED)
    images, labels, held_images, held_labels = split(rng)
    print(f"{len(labels)} images to learn from, {len(held_labels)} held back")
    values = train(images, labels, rng)
    right = int((classify(held_images, values).argmax(1) == held_labels).sum())
    print(f"right on the images held back: {right} of {len(held_labels)} ({right / len(held_labels):.1%})")
    write(HERE / "model.nnef", values)
    np.savez_compressed(HERE / "test.npz", images=held_images, labels=held_labels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
