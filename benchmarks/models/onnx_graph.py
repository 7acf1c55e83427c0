"""Builds an ONNX graph, and keeps the values that it draws also for the graph's NNEF twin: by label, in NNEF's shapes.

`gain` is the variance of a filter's values times the number of products in a sum: 2 after a relu keeps activations at
their size (He et al., 2015), 1 after what does not change it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

__all__ = ["OnnxGraph"]

OPSET = 20  # the first with Gelu
IR_VERSION = 9  # the one that came with it
EPSILON = 1e-3  # of batch normalizations


class OnnxGraph:
    """A graph of one input and one output in the making. Layers take and return names of tensors.

    Attributes:
        weights: the values of variables, in the shapes of the NNEF document, by label.
    """

    def __init__(self, name: str, shape: tuple[int, ...], seed: int = 0) -> None:
        self.weights: dict[str, np.ndarray] = {}
        self._name = name
        self._shape = shape
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, np.ndarray] = {}
        self._channels = {"input": shape[1]}  # of tensors that convolutions read

    def model(self, output: str) -> onnx.ModelProto:
        """The finished model, checked, all its shapes inferred."""
        self._measure_statistics()
        model = self._model(self._nodes, [output])
        initializers = list(model.graph.initializer)
        # Copying hundreds of megabytes again and again takes seconds: of trained values, shapes are all that is asked.
        del model.graph.initializer[:]
        model.graph.initializer.extend(each for each in initializers if each.name not in self.weights)
        model.graph.input.extend(
            helper.make_tensor_value_info(each.name, each.data_type, each.dims)
            for each in initializers
            if each.name in self.weights
        )
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        del model.graph.input[1:], model.graph.initializer[:]
        model.graph.initializer.extend(initializers)
        return model

    def _model(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            nodes,
            self._name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, self._shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs],
            [numpy_helper.from_array(value, name) for name, value in self._initializers.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _measure_statistics(self) -> None:
        """Give batch normalizations the means and variances that their inputs have for a random image.

        That is what training does; without it, activations grow or vanish over fifty layers. One run finds all: an
        instance normalization has the same scale and offset and takes the statistics from its input.
        """
        normalizations = [node for node in self._nodes if node.op_type == "BatchNormalization"]
        if not normalizations:
            return
        nodes = [
            helper.make_node("InstanceNormalization", node.input[:3], node.output, epsilon=EPSILON)
            if node.op_type == "BatchNormalization"
            else node
            for node in self._nodes
        ]
        model = self._model(nodes, [node.input[0] for node in normalizations])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the same sums each time
        options.log_severity_level = 3  # it warns of the statistics that it does not read
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        image = self._random.standard_normal(self._shape, np.float32)
        for node, value in zip(normalizations, session.run(None, {"input": image}), strict=True):
            mean, variance = value.mean((0, 2, 3)), value.var((0, 2, 3))
            for label, statistic in zip(node.input[3:], (mean, variance), strict=True):
                self._initializers[label] = statistic
                self.weights[label] = statistic[np.newaxis]

    # What graphs are made of.

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        """A node with one result. It has the channels of its first input."""
        return self.nodes(operator, 1, *inputs, **attributes)[0]

    def nodes(self, operator: str, count: int, *inputs: str, **attributes: object) -> list[str]:
        """The `count` results of a node."""
        results = [f"{operator.lower()}{len(self._nodes)}_{position}" for position in range(count)]
        self._nodes.append(helper.make_node(operator, list(inputs), results, **attributes))
        self._channels |= dict.fromkeys(results, self._channels.get(inputs[0], 0))
        return results

    def constant(self, value: Sequence[int] | Sequence[float] | float) -> str:
        """A constant that is no trained value."""
        array = np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        name = f"constant{len(self._initializers)}"
        self._initializers[name] = array
        return name

    def weight(self, label: str, value: np.ndarray, shape: tuple[int, ...]) -> str:
        """A trained value of shape `shape` in the NNEF document."""
        array = value.astype(np.float32)
        self.weights[label] = array.reshape(shape)
        self._initializers[label] = array
        return label

    def normal(self, shape: tuple[int, ...], fan_in: int, gain: float) -> np.ndarray:
        return self._random.standard_normal(shape, np.float32) * np.float32(math.sqrt(gain / fan_in))

    def offset(self, label: str, size: int, rank: int = 2) -> str:
        """One number a channel, the last dimension of `rank`: a bias."""
        return self.weight(label, 0.1 * self._random.standard_normal(size), (1,) * (rank - 1) + (size,))

    def scale(self, label: str, size: int, rank: int = 2) -> str:
        """The same, near one and positive."""
        return self.weight(label, np.exp(0.1 * self._random.standard_normal(size)), (1,) * (rank - 1) + (size,))

    # Layers of image networks.

    def channels(self, x: str) -> int:
        return self._channels[x]

    def conv(self, x: str, channels: int, size: int, scope: str, *, stride: int = 1, groups: int = 1) -> str:
        """A convolution without bias, followed by a batch normalization. Padded by half its size."""
        filter = self._filter(x, channels, size, scope, groups)
        y = self.node("Conv", x, filter, **_window(size, stride, size // 2), group=groups)
        return self._batch_normalization(y, channels, scope)

    def conv_bias(self, x: str, channels: int, size: int, scope: str, *, stride: int = 1) -> str:
        """A convolution with a bias and without padding."""
        filter = self._filter(x, channels, size, scope, 1)
        y = self.node("Conv", x, filter, self.offset(f"{scope}/bias", channels), **_window(size, stride, 0))
        self._channels[y] = channels
        return y

    def enlarge(self, x: str, channels: int, scope: str) -> str:
        """A transposed convolution of size 2 and stride 2, with a bias: each output is one sum over channels."""
        inputs = self.channels(x)
        filter = self.weight(
            f"{scope}/filter", self.normal((inputs, channels, 2, 2), inputs, 1.0), (inputs, channels, 2, 2)
        )
        y = self.node("ConvTranspose", x, filter, self.offset(f"{scope}/bias", channels), **_window(2, 2, 0))
        self._channels[y] = channels
        return y

    def concat(self, *values: str) -> str:
        """Side by side in channels."""
        y = self.node("Concat", *values, axis=1)
        self._channels[y] = sum(map(self.channels, values))
        return y

    def split_in_two(self, x: str) -> list[str]:
        """The first half of the channels and the second."""
        results = self.nodes("Split", 2, x, axis=1, num_outputs=2)
        self._channels |= dict.fromkeys(results, self.channels(x) // 2)
        return results

    def max_pool(self, x: str, size: int, padding: int = 0) -> str:
        """Of stride 2."""
        return self.node("MaxPool", x, **_window(size, 2, padding))

    def linear(self, x: str, inputs: int, outputs: int, scope: str, *, gain: float = 1.0) -> str:
        filter = self.weight(f"{scope}/filter", self.normal((outputs, inputs), inputs, gain), (outputs, inputs))
        return self.node("Gemm", x, filter, self.offset(f"{scope}/bias", outputs), transB=1)

    def classify(self, x: str, scope: str) -> str:
        """A thousand logits."""
        means = self.node("Flatten", self.node("GlobalAveragePool", x))
        return self.linear(means, self.channels(x), 1000, scope)

    def _filter(self, x: str, channels: int, size: int, scope: str, groups: int) -> str:
        shape = (channels, self.channels(x) // groups, size, size)
        return self.weight(f"{scope}/filter", self.normal(shape, math.prod(shape[1:]), 1.0), shape)

    def _batch_normalization(self, x: str, channels: int, scope: str) -> str:
        parts = [self.scale(f"{scope}/gamma", channels), self.offset(f"{scope}/beta", channels)]
        zeros, ones = np.zeros(channels), np.ones(channels)  # until the statistics are known
        parts += [
            self.weight(f"{scope}/mean", zeros, (1, channels)),
            self.weight(f"{scope}/variance", ones, (1, channels)),
        ]
        y = self.node("BatchNormalization", x, *parts, epsilon=EPSILON)
        self._channels[y] = channels
        return y

    # Layers of transformers, on [1, tokens, width].

    def dense(self, x: str, inputs: int, outputs: int, scope: str, *, gain: float = 1.0) -> str:
        filter = self.weight(f"{scope}/filter", self.normal((inputs, outputs), inputs, gain), (1, inputs, outputs))
        return self.node("Add", self.node("MatMul", x, filter), self.offset(f"{scope}/bias", outputs, 3))

    def norm(self, x: str, width: int, scope: str, epsilon: float) -> str:
        scale, offset = self.scale(f"{scope}/scale", width, 3), self.offset(f"{scope}/offset", width, 3)
        return self.node("LayerNormalization", x, scale, offset, axis=-1, epsilon=epsilon)


def _window(size: int, stride: int, padding: int) -> dict[str, list[int]]:
    return {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [padding] * 4}
