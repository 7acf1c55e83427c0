"""Computations of activation that at least two formats can say."""

from formats import Computation, real

SLOPES = real(1, 4, 1)
COMPUTATIONS = [
    Computation(name, (2, 4, 5), constants, nnef, onnx, pnnx, opset=24)
    for name, constants, nnef, onnx, pnnx in (
        ("relu", {}, "relu(x)", ("Relu", "x", {}), ("nn.ReLU", {})),
        ("leaky relu", {}, "leaky_relu(x, alpha = 0.25)", ("LeakyRelu", "x", {"alpha": 0.25}),
         ("nn.LeakyReLU negative_slope=0.25", {})),
        ("parametric relu", {"s": SLOPES, "v": SLOPES.reshape(4)}, "prelu(x, s)", ("PRelu", "x s", {}),
         ("nn.PReLU num_parameters=4", {"weight": "v"})),
        ("elu", {}, "elu(x, alpha = 0.5)", ("Elu", "x", {"alpha": 0.5}), ("nn.ELU alpha=0.5", {})),
        ("celu", {}, None, ("Celu", "x", {"alpha": 0.5}), ("nn.CELU alpha=0.5", {})),
        ("silu", {}, "silu(x)", ("Swish", "x", {}), ("nn.SiLU", {})),
        ("gelu", {}, None, ("Gelu", "x", {}), ("nn.GELU", {})),
        ("gelu by tanh", {}, None, ("Gelu", "x", {"approximate": "tanh"}), ("nn.GELU approximate=tanh", {})),
        ("hard sigmoid", {}, None, ("HardSigmoid", "x", {"alpha": 1 / 6}), ("nn.Hardsigmoid", {})),
        ("hard swish", {}, None, ("HardSwish", "x", {}), ("nn.Hardswish", {})),
        ("soft shrink", {}, None, ("Shrink", "x", {"lambd": 0.5, "bias": 0.5}), None),
        ("soft shrink that keeps NaN", {}, None, None, ("nn.Softshrink lambd=0.5", {})),
        ("softplus", {}, "softplus(x)", ("Softplus", "x", {}), ("nn.Softplus beta=1.0 threshold=20.0", {})),
        ("softsign", {}, None, ("Softsign", "x", {}), ("nn.Softsign", {})),
        ("mish", {}, None, ("Mish", "x", {}), ("nn.Mish", {})),
        ("thresholded relu", {}, None, ("ThresholdedRelu", "x", {"alpha": 0.5}), None),
        ("threshold that keeps NaN", {}, None, None, ("nn.Threshold threshold=0.5 value=0.0", {})),
        ("softmax", {}, "softmax(x, axes = [1])", ("Softmax", "x", {"axis": 1}), ("nn.Softmax dim=1", {})),
        ("log softmax", {}, None, ("LogSoftmax", "x", {"axis": -1}), ("nn.LogSoftmax dim=2", {})),
    )
]  # fmt: skip
