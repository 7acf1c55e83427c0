"""Computations of convolution that at least two formats can say."""

from formats import Computation, real

COMPUTATIONS = [
    Computation(
        "convolution",
        (2, 4, 7, 9),
        {"w": real(6, 4, 3, 3), "b": real(6)},
        "conv(x, w, b, stride = [2, 1], padding = [(1, 1), (2, 2)], dilation = [1, 2])",
        ("Conv", "x w b", {"strides": [2, 1], "pads": [1, 2, 1, 2], "dilations": [1, 2]}),
        (
            "nn.Conv2d in_channels=4 out_channels=6 kernel_size=(3,3) stride=(2,1) padding=(1,2) dilation=(1,2) "
            "bias=True",
            {"weight": "w", "bias": "b"},
        ),
    ),
    Computation(
        "convolution in groups, with as many results as inputs",
        (1, 6, 11),
        {"w": real(6, 1, 4)},
        "conv(x, w, groups = 0)",
        ("Conv", "x w", {"group": 6, "auto_pad": "SAME_UPPER"}),
        ("nn.Conv1d in_channels=6 out_channels=6 kernel_size=(4) padding=same groups=6 bias=False", {"weight": "w"}),
    ),
    Computation(
        "transposed convolution",
        (1, 4, 5, 6),
        {"w": real(4, 3, 3, 3), "b": real(3)},
        "deconv(x, w, b, stride = [2, 2], padding = [(1, 1), (1, 1)], output_shape = [1, 3, 10, 12])",
        ("ConvTranspose", "x w b", {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
        (
            "nn.ConvTranspose2d in_channels=4 out_channels=3 kernel_size=(3,3) stride=(2,2) padding=(1,1) "
            "output_padding=(1,1) bias=True",
            {"weight": "w", "bias": "b"},
        ),
    ),
    Computation(
        "transposed convolution in groups",
        (1, 4, 5),
        {"w": real(4, 1, 4)},
        "deconv(x, w, stride = [3], padding = [(1, 1)], groups = 4)",
        ("ConvTranspose", "x w", {"strides": [3], "pads": [1, 1], "group": 4}),
        (
            "nn.ConvTranspose1d in_channels=4 out_channels=4 kernel_size=(4) stride=(3) padding=(1) groups=4 "
            "bias=False",
            {"weight": "w"},
        ),
    ),
    Computation(
        "transposed convolution with a dilation",
        (1, 2, 5, 4, 3),
        {"w": real(2, 2, 2, 3, 1)},
        "deconv(x, w, stride = [1, 2, 1], padding = [(0, 0), (0, 0), (0, 0)], dilation = [2, 1, 1])",
        ("ConvTranspose", "x w", {"strides": [1, 2, 1], "dilations": [2, 1, 1]}),
        (
            "nn.ConvTranspose3d in_channels=2 out_channels=2 kernel_size=(2,3,1) stride=(1,2,1) dilation=(2,1,1) "
            "bias=False",
            {"weight": "w"},
        ),
    ),
]
