"""The ONNX twins of the documents next to this file that describe image networks, with their values.

Each function takes nothing from the document: it states the architecture a second time, so that the comparison of
results also compares two readings of the paper.
"""

from __future__ import annotations

from models.onnx_graph import OnnxGraph

__all__ = ["efficientnet_b0", "mobilenet_v1", "mobilenet_v2", "resnet18_batch8", "unet", "yolov4_tiny"]

Built = tuple[OnnxGraph, str]  # and the name of the output


def mobilenet_v1() -> Built:
    graph = OnnxGraph("mobilenet_v1", (1, 3, 224, 224))

    def conv(x: str, channels: int, size: int, scope: str, stride: int = 1, groups: int = 1) -> str:
        return graph.node("Relu", graph.conv(x, channels, size, scope, stride=stride, groups=groups))

    x = conv("input", 32, 3, "first", stride=2)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for number, (channels, stride) in enumerate(blocks, 1):
        width = graph.channels(x)
        x = conv(x, width, 3, f"block{number}/depthwise", stride=stride, groups=width)
        x = conv(x, channels, 1, f"block{number}/pointwise")
    return graph, graph.classify(x, "classifier")


def mobilenet_v2() -> Built:
    graph = OnnxGraph("mobilenet_v2", (1, 3, 224, 224))
    limits = graph.constant(0.0), graph.constant(6.0)

    def conv(x: str, channels: int, size: int, scope: str, stride: int = 1, groups: int = 1) -> str:
        return graph.node("Clip", graph.conv(x, channels, size, scope, stride=stride, groups=groups), *limits)

    x = conv("input", 32, 3, "first", stride=2)
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    blocks = [
        (widen, channels, stride if position == 0 else 1)
        for widen, channels, count, stride in stages
        for position in range(count)
    ]
    for number, (widen, channels, stride) in enumerate(blocks, 1):
        inputs = graph.channels(x)
        y = conv(x, widen * inputs, 1, f"block{number}/expand") if widen > 1 else x
        y = conv(y, widen * inputs, 3, f"block{number}/depthwise", stride=stride, groups=widen * inputs)
        residual = stride == 1 and inputs == channels
        y = graph.conv(y, channels, 1, f"block{number}/project")
        x = graph.node("Add", x, y) if residual else y
    return graph, graph.classify(conv(x, 1280, 1, "last"), "classifier")


def efficientnet_b0() -> Built:
    graph = OnnxGraph("efficientnet_b0", (1, 3, 224, 224))

    def swish(x: str) -> str:
        return graph.node("Mul", x, graph.node("Sigmoid", x))

    def conv(x: str, channels: int, size: int, scope: str, stride: int = 1, groups: int = 1) -> str:
        return swish(graph.conv(x, channels, size, scope, stride=stride, groups=groups))

    def excite(x: str, squeezed: int, scope: str) -> str:
        means = graph.node("GlobalAveragePool", x)
        inner = swish(graph.conv_bias(means, squeezed, 1, f"{scope}/squeeze"))
        return graph.node(
            "Mul", x, graph.node("Sigmoid", graph.conv_bias(inner, graph.channels(x), 1, f"{scope}/excite"))
        )

    x = conv("input", 32, 3, "first", stride=2)
    stages = [
        (1, 16, 3, 1, 1),
        (6, 24, 3, 2, 2),
        (6, 40, 5, 2, 2),
        (6, 80, 3, 3, 2),
        (6, 112, 5, 3, 1),
        (6, 192, 5, 4, 2),
        (6, 320, 3, 1, 1),
    ]
    blocks = [
        (widen, channels, size, stride if position == 0 else 1)
        for widen, channels, size, count, stride in stages
        for position in range(count)
    ]
    for number, (widen, channels, size, stride) in enumerate(blocks, 1):
        inputs = graph.channels(x)
        y = conv(x, widen * inputs, 1, f"block{number}/expand") if widen > 1 else x
        y = conv(y, widen * inputs, size, f"block{number}/depthwise", stride=stride, groups=widen * inputs)
        y = excite(y, inputs // 4, f"block{number}")
        residual = stride == 1 and inputs == channels
        y = graph.conv(y, channels, 1, f"block{number}/project")
        x = graph.node("Add", x, y) if residual else y
    return graph, graph.classify(conv(x, 1280, 1, "last"), "classifier")


def resnet18_batch8() -> Built:
    graph = OnnxGraph("resnet18", (8, 3, 224, 224))
    x = graph.node("Relu", graph.conv("input", 64, 7, "first", stride=2))
    x = graph.max_pool(x, 3, padding=1)
    for stage, channels in enumerate((64, 128, 256, 512), 1):
        for block in (1, 2):
            stride = 2 if stage > 1 and block == 1 else 1
            scope = f"stage{stage}/block{block}"
            y = graph.node("Relu", graph.conv(x, channels, 3, f"{scope}/first", stride=stride))
            y = graph.conv(y, channels, 3, f"{scope}/second")
            shortcut = graph.conv(x, channels, 1, f"{scope}/shortcut", stride=stride) if stride > 1 else x
            x = graph.node("Relu", graph.node("Add", shortcut, y))
    return graph, graph.classify(x, "classifier")


def yolov4_tiny() -> Built:
    graph = OnnxGraph("yolov4_tiny", (1, 3, 416, 416))

    def conv(x: str, channels: int, size: int, scope: str, stride: int = 1) -> str:
        return graph.node("LeakyRelu", graph.conv(x, channels, size, scope, stride=stride), alpha=0.1)

    def head(x: str, channels: int, scope: str) -> str:
        y = graph.conv_bias(conv(x, channels, 3, f"{scope}/a"), 255, 1, f"{scope}/b")
        return graph.node("Reshape", y, graph.constant([1, 255, -1]))

    x = conv("input", 32, 3, "first", stride=2)
    x = conv(x, 64, 3, "second", stride=2)
    fine = ""
    for stage, channels in enumerate((64, 128, 256), 1):
        x = conv(x, channels, 3, f"stage{stage}")
        half = graph.split_in_two(x)[1]
        a = conv(half, channels // 2, 3, f"stage{stage}/a")
        b = conv(a, channels // 2, 3, f"stage{stage}/b")
        fine = conv(graph.concat(b, a), channels, 1, f"stage{stage}/c")
        x = graph.max_pool(graph.concat(x, fine), 2)
    x = conv(conv(x, 512, 3, "stage4"), 256, 1, "neck")
    coarse_head = head(x, 512, "coarse")
    x = conv(x, 128, 1, "lateral")
    setting = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = graph.node("Resize", x, "", graph.constant([1.0, 1.0, 2.0, 2.0]), **setting)
    fine_head = head(graph.concat(x, fine), 256, "fine")
    return graph, graph.node("Concat", fine_head, coarse_head, axis=2)


def unet() -> Built:
    graph = OnnxGraph("unet", (1, 3, 256, 256))

    def twice(x: str, channels: int, scope: str) -> str:
        for part in "ab":
            x = graph.node("Relu", graph.conv(x, channels, 3, f"{scope}/{part}"))
        return x

    x = "input"
    passed = []
    for channels in (32, 64, 128, 256):
        x = twice(x, channels, f"down{channels}")
        passed.append((channels, x))
        x = graph.max_pool(x, 2)
    x = twice(x, 512, "down512")
    for channels, skipped in reversed(passed):
        x = twice(graph.concat(skipped, graph.enlarge(x, channels, f"enlarge{channels}")), channels, f"up{channels}")
    return graph, graph.conv_bias(x, 2, 1, "last")
