"""Makes the cases that test every operator: `python tests/data/pnnx/cases.py [FAMILY …]`.

Needs PyTorch, and no converter: the converter writes one of several names for what PyTorch can spell in several ways, a
file may have each. For each family, `cases/FAMILY.pnnx.param`, its `.bin`, and `cases/FAMILY.npz` with `input_0`, … and
`output_0`, …: a network that applies every operator of the family to a few inputs, and what PyTorch computes.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

HERE = Path(__file__).parent / "cases"
TYPES = {
    torch.float16: "f16", torch.float32: "f32", torch.float64: "f64", torch.int16: "i16", torch.int32: "i32",
    torch.int64: "i64", torch.bool: "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An operator of the file on some operands.

    Attributes:
        type: its name in the file.
        operands: tensors that have no names there.
        arguments: parameters; tensors among them are operands with names.
        reference: what PyTorch computes, where `type` and `arguments` do not say it in Python: takes the operands and
            the arguments.
    """

    type: str
    operands: tuple[Tensor, ...]
    arguments: dict[str, Any]
    reference: Callable[..., Any] | None


def case(type: str, *operands: Tensor, reference: Callable[..., Any] | None = None, **arguments: Any) -> Case:
    """A case of one operator."""
    return Case(type, operands, arguments, reference)


def each(types: str, *operands: Tensor, reference: Callable[..., Any] | None = None, **arguments: Any) -> list[Case]:
    """The same case of several operators, whose names `types` has with blanks between them."""
    return [Case(type, operands, arguments, reference) for type in types.split()]


# Inputs.

torch.manual_seed(11)
SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 3.0, -3.0])


def real(*shape: int, special: bool = False) -> Tensor:
    """Random reals; with `special`, among them those that comparisons and rounding must mind."""
    made = 2 * torch.randn(*shape)
    if special:
        made.view(-1)[: len(SPECIAL)] = SPECIAL
    return made


def whole(low: int, high: int, *shape: int) -> Tensor:
    """Random integers from `low` to `high`."""
    return torch.randint(low, high + 1, shape)


LINE, PLANE, SPACE = real(2, 4, 11), real(2, 4, 6, 9), real(1, 4, 5, 6, 7)
MATRIX, SQUARE, BATCH, VECTOR = real(5, 7), real(5, 5), real(3, 5, 4), real(7)
ODD = real(3, 2, 7, special=True)
POSITIVE = real(3, 7).abs() + 0.1
NUMBERS, DIVISORS = whole(-9, 9, 3, 7), whole(1, 5, 3, 7)
TRUTH = torch.rand(3, 7) > 0.5


def activations() -> list[Case]:
    simple = (
        "relu relu6 selu silu mish hardsigmoid hardswish tanhshrink softsign sigmoid tanh logsigmoid leaky_relu "
        "elu celu hardtanh hardshrink softshrink softplus"
    )
    modules = (
        "ReLU ReLU6 SELU SiLU Mish Hardsigmoid Hardswish Tanhshrink Softsign Sigmoid Tanh LogSigmoid LeakyReLU "
        "ELU CELU Hardtanh Hardshrink Softshrink Softplus"
    )
    # PyTorch's gelu of infinity depends on the machine.
    finite = ODD.nan_to_num(nan=float("nan"), posinf=9.0, neginf=-9.0)
    halves, channels, slopes = real(2, 4, 6), real(2, 4, 3, special=True), real(4)
    return [
        *each(" ".join(f"F.{name}" for name in simple.split()), ODD),
        *each(" ".join(f"nn.{name}" for name in modules.split()), ODD),
        *each("Tensor.sigmoid Tensor.tanh torch.hardshrink", ODD),
        *each("F.leaky_relu nn.LeakyReLU", ODD, negative_slope=0.3),
        *each("F.elu nn.ELU F.celu nn.CELU", ODD, alpha=0.7),
        *each("F.gelu nn.GELU", finite),
        *each("F.gelu nn.GELU", finite, approximate="tanh"),
        *each("F.hardtanh nn.Hardtanh", ODD, min_val=-0.5, max_val=2.0),
        *each("F.hardshrink nn.Hardshrink F.softshrink nn.Softshrink torch.hardshrink", ODD, lambd=0.8),
        *each("F.softplus nn.Softplus", ODD, beta=2.0, threshold=3.0),
        *each("F.threshold nn.Threshold", ODD, threshold=0.2, value=-1.5),
        *each("F.rrelu nn.RReLU", ODD, lower=0.1, upper=0.4),
        *each("F.glu nn.GLU", halves, dim=1),
        case("F.glu", halves),
        *each("F.prelu torch.prelu", channels, slopes),
        case("nn.PReLU", channels, num_parameters=4),
        case("nn.PReLU", ODD),
    ]


def attention() -> list[Case]:
    q, k, v, mask = real(2, 3, 5, 4), real(2, 3, 6, 4), real(2, 3, 6, 4), torch.rand(5, 6) > 0.2
    keys, values = real(2, 1, 6, 4), real(2, 1, 6, 4)
    a, b, c = real(5, 2, 8), real(7, 2, 6), real(7, 2, 4)
    return [
        case("F.scaled_dot_product_attention", q, k, v),
        case("F.scaled_dot_product_attention", query=q, key=k, value=v, attn_mask=mask, scale=0.3),
        case("F.scaled_dot_product_attention", q, q, q, is_causal=True),
        case("F.scaled_dot_product_attention", q, keys, values, enable_gqa=True),
        case("nn.MultiheadAttention", a, a, a, embed_dim=8, num_heads=2),
        case("nn.MultiheadAttention", a, b, c, embed_dim=8, num_heads=4, kdim=6, vdim=4, bias=False),
    ]


def convolutions() -> list[Case]:
    cases = []
    for rank, x in ((1, LINE), (2, PLANE), (3, SPACE)):
        size = (3, 2, 2)[:rank]
        filters, back, bias = real(6, 2, *size), real(4, 3, *size), real(6)
        shared = {"stride": 2, "padding": 1, "groups": 2}
        module = {"in_channels": 4, "out_channels": 6, "kernel_size": size}
        cases += [
            case(f"F.conv{rank}d", x, filters, bias, **shared),
            case(f"F.conv{rank}d", x, filters, groups=2, dilation=2, padding="same"),
            case(f"F.conv_transpose{rank}d", x, back, bias, output_padding=1, **shared),
            case(f"F.conv_transpose{rank}d", x, back, dilation=2),
            case(f"nn.Conv{rank}d", x, **module, **shared),
            case(f"nn.Conv{rank}d", x, **module, bias=False, padding=1, padding_mode="reflect"),
            case(f"nn.ConvTranspose{rank}d", x, **module, output_padding=1, **shared),
            case(f"nn.ConvTranspose{rank}d", x[:1], **module, bias=False, dilation=2),
        ]
    return cases


def creation() -> list[Case]:
    n = NUMBERS
    return [
        *each("torch.zeros torch.ones", size=(2, 3)),
        *each("torch.zeros torch.ones", size=(4,), dtype=torch.int64),
        *each("torch.zeros_like torch.ones_like", n),
        *each("torch.zeros_like torch.ones_like", n, dtype=torch.float32),
        *each("Tensor.new_zeros Tensor.new_ones", n, size=(3, 2)),
        # What is in these is left open; the test looks at their shapes and types.
        case("torch.empty", size=(4,), dtype=torch.int64, reference=torch.zeros),
        case("torch.empty_like", n, dtype=torch.float32, reference=torch.zeros_like),
        case("Tensor.new_empty", n, size=(3, 2), reference=Tensor.new_zeros),
        case("torch.full", size=(2, 3), fill_value=2.5),
        case("torch.full", size=(2,), fill_value=True),
        case("torch.full_like", n, fill_value=-3),
        case("Tensor.new_full", n, size=(3,), fill_value=7),
        case("Tensor.fill", n, value=4, reference=torch.fill),
        case("torch.arange", end=5),
        case("torch.arange", start=-1, end=2.5, step=0.3),
        case("torch.arange", start=7, end=-3, step=-2, dtype=torch.float32),
        case("torch.linspace", start=-1.0, end=2.0, steps=7),
        case("torch.linspace", start=0, end=9, steps=4, dtype=torch.float64),
        case("torch.eye", n=3),
        case("torch.eye", n=2, m=4, dtype=torch.int64),
    ]


def elementwise() -> list[Case]:
    of_reals = (
        "abs absolute asinh atan ceil cos cosh erf exp exp2 expm1 floor frac isfinite isinf isnan logical_not neg "
        "negative relu sigmoid sign sin sinh square tan tanh trunc round"
    )
    of_some = "acos asin atanh log log10 log1p log2 reciprocal rsqrt sqrt acosh"
    comparisons = "eq ge gt le lt ne greater greater_equal less less_equal not_equal"
    mixed = "add sub rsub mul multiply div divide fmod remainder floor_divide atan2 arctan2"
    logic = "logical_and logical_or logical_xor"
    bits = "bitwise_and bitwise_or bitwise_xor"
    other = real(3, 2, 7, special=True).flip(0)
    swapped = ODD.flip(2)
    some, more = real(3, 7), real(3, 7)
    shifts = whole(0, 6, 3, 7)

    def names(text: str) -> str:
        return " ".join(f"torch.{name}" for name in text.split())

    return [
        *each(names(of_reals), ODD),
        *each(names(of_some), ODD),
        *each(names(of_some), POSITIVE),
        *each(names("abs neg sign square relu ceil exp sqrt reciprocal"), DIVISORS),
        case("Tensor.relu", ODD),
        *each(names(f"{comparisons} maximum minimum"), ODD, swapped),
        *each(names(comparisons), ODD, other=0.5),
        *each(names(f"{mixed} logaddexp"), some, more),
        case("torch.logaddexp", ODD, swapped),
        *each(names(mixed), NUMBERS, DIVISORS),
        *each(names("add sub rsub"), some, more, alpha=2.5),
        *each(names("add sub rsub"), NUMBERS, other=3, alpha=2),
        *each(names("fmod remainder floor_divide"), ODD, other),
        *each(names("div divide"), some, more, rounding_mode="floor"),
        *each(names("div divide"), NUMBERS, DIVISORS, rounding_mode="trunc"),
        *each(names(logic), TRUTH, NUMBERS),
        *each(names(logic), ODD, swapped),
        *each(names(bits), NUMBERS, DIVISORS),
        *each(names(bits), TRUTH, NUMBERS > 0),
        *each(names("bitwise_not"), NUMBERS),
        *each(names("bitwise_not"), TRUTH),
        *each("torch.bitwise_left_shift torch.lshift", NUMBERS, shifts, reference=torch.bitwise_left_shift),
        *each("torch.bitwise_right_shift torch.rshift", NUMBERS, shifts, reference=torch.bitwise_right_shift),
        *each("torch.pow Tensor.pow", POSITIVE, some),
        *each("torch.pow Tensor.pow", ODD, exponent=3),
        *each("torch.pow Tensor.pow", NUMBERS, exponent=4),
        *each("torch.clamp torch.clip Tensor.clamp", ODD, min=-0.5, max=1.5),
        *each("torch.clamp torch.clip Tensor.clamp", NUMBERS, min=-3),
        *each("torch.clamp Tensor.clamp", ODD, max=swapped),
        *each("torch.clamp_min Tensor.clamp_min", ODD, min=0.5),
        *each("torch.clamp_max Tensor.clamp_max", ODD, max=0.5),
        case("torch.lerp", some, more, weight=0.3),
        case("torch.lerp", some, more, POSITIVE),
        *each("torch.addcmul torch.addcdiv", some, more, POSITIVE, value=0.5),
    ]


def embedding() -> list[Case]:
    index = whole(0, 8, 2, 5)
    return [
        case("nn.Embedding", index, num_embeddings=9, embedding_dim=4),
        case("F.embedding", index, real(9, 3)),
        case("F.one_hot", index, num_classes=10),
    ]


def identity() -> list[Case]:
    names = "alpha_dropout dropout dropout2d dropout3d feature_alpha_dropout"
    modules = "AlphaDropout Dropout Dropout2d Dropout3d FeatureAlphaDropout"
    return [
        *each(" ".join(f"F.{name}" for name in names.split()), SPACE, p=0.4, training=False),
        *each(" ".join(f"nn.{name}" for name in modules.split()), SPACE, p=0.4),
        case("F.dropout1d", LINE, p=0.4, training=False),
        case("nn.Dropout1d", LINE, p=0.4),
        *each("Tensor.clone Tensor.contiguous Tensor.detach nn.Identity torch.clone torch.detach", ODD),
        case("Tensor.to", MATRIX, dtype=torch.int32),
        case("Tensor.type", MATRIX, dtype=torch.float64),
        case("Tensor.type_as", MATRIX, NUMBERS),
        *each("Tensor.bool Tensor.double Tensor.float Tensor.half Tensor.int Tensor.long Tensor.short", MATRIX),
        *each("Tensor.bool Tensor.double Tensor.float Tensor.half Tensor.int Tensor.long Tensor.short", NUMBERS),
    ]


def indexing() -> list[Case]:
    indices, columns, mask = whole(0, 4, 3, 2), whole(0, 6, 2), SQUARE > 0
    ties = torch.tensor([[1.0, 3.0, 2.0, 0.5, -1.0], [4.0, -2.0, 0.0, 5.0, 7.0]])
    return [
        case("Tensor.slice", MATRIX, dim=1, start=1, end=6, step=2, reference=lambda x, **_: x[:, 1:6:2]),
        case(
            "Tensor.slice",
            PLANE,
            dims=(0, 2),
            starts=(1, -4),
            ends=(0, 2147483647),
            steps=(0, 1),
            selects=(1, 2147483647),
            reference=lambda x, **_: x[1, :, -4:],
        ),
        *each("Tensor.select torch.select", PLANE, dim=2, index=-2),
        *each("Tensor.narrow torch.narrow", PLANE, dim=3, start=2, length=5),
        case("torch.index_select", MATRIX, dim=1, index=columns),
        case("torch.gather", MATRIX, dim=0, index=whole(0, 4, 3, 7)),
        case("Tensor.index", MATRIX, expr=indices, reference=lambda x, expr: x[expr]),
        *each("Tensor.masked_fill torch.masked_fill", SQUARE, mask, value=-2.5),
        case("torch.where", mask, SQUARE, SQUARE.t().contiguous()),
        case("torch.where", mask, SQUARE, other=1.5),
        *each("Tensor.tril torch.tril Tensor.triu torch.triu", SQUARE),
        *each("Tensor.tril torch.tril Tensor.triu torch.triu", MATRIX, diagonal=-1),
        case("torch.diag", MATRIX, diagonal=2),
        case("torch.diag", SQUARE),
        case("torch.topk", ties, k=3),
        case("torch.topk", MATRIX, k=2, dim=0, largest=False),
        *each("torch.sort torch.argsort", ties),
        *each("torch.sort torch.argsort", MATRIX, dim=0, descending=True),
    ]


def matrix() -> list[Case]:
    right, other = real(7, 3), real(3, 4, 6)
    return [
        case("nn.Linear", MATRIX, in_features=7, out_features=3),
        case("nn.Linear", real(2, 3, 7), in_features=7, out_features=9, bias=False),
        case("F.linear", MATRIX, right.t().contiguous()),
        case("F.linear", MATRIX, right.t().contiguous(), real(3)),
        *each("Tensor.matmul torch.matmul", BATCH, other),
        *each("Tensor.matmul torch.matmul", MATRIX, VECTOR),
        case("torch.mm", MATRIX, right),
        case("torch.bmm", BATCH, other),
        case("torch.mv", MATRIX, VECTOR),
        case("torch.dot", VECTOR, VECTOR),
        case("torch.outer", VECTOR, real(4)),
        case("torch.addmm", real(3), MATRIX, right, beta=0.5, alpha=2.0),
        case("torch.baddbmm", real(3, 5, 6), BATCH, other, beta=1.5, alpha=-1.0),
        case("torch.addmv", real(5), MATRIX, VECTOR, alpha=0.5),
        case("torch.einsum", BATCH, other, equation="bij,bjk->ki", reference=_einsum),
        case("torch.einsum", MATRIX, right, equation="ab,bc", reference=_einsum),
    ]


def _einsum(*operands: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *operands)


def normalization() -> list[Case]:
    mean, variance, scale, shift = real(4), real(4).abs() + 0.5, real(4), real(4)
    flat = real(2, 4)
    wide, wide_shift = real(6, 9), real(6, 9)
    cases = [
        case("nn.BatchNorm1d", flat, num_features=4),
        case("F.batch_norm", PLANE, mean, variance, scale, shift, eps=1e-3),
        case("F.batch_norm", LINE, mean, variance),
        case("nn.LayerNorm", PLANE, normalized_shape=(9,)),
        case("nn.LayerNorm", PLANE, normalized_shape=(6, 9), elementwise_affine=False),
        case("F.layer_norm", PLANE, normalized_shape=(6, 9), weight=wide, bias=wide_shift),
        case("nn.RMSNorm", PLANE, normalized_shape=(9,), eps=1e-5),
        case("F.rms_norm", PLANE, normalized_shape=(6, 9), weight=wide),
        case("nn.GroupNorm", PLANE, num_groups=2, num_channels=4),
        *each("F.group_norm torch.group_norm", LINE, num_groups=2, weight=scale, bias=shift),
        case("F.instance_norm", LINE),
        case("F.instance_norm", PLANE, running_mean=mean, running_var=variance, use_input_stats=False),
        *each("F.local_response_norm nn.LocalResponseNorm", PLANE, size=3, alpha=0.5, beta=0.6, k=1.2),
        *each("F.local_response_norm nn.LocalResponseNorm", LINE, size=2),
        case("F.normalize", PLANE, dim=2),
        case("F.normalize", PLANE, p=1.0, dim=-1),
    ]
    for rank, x in ((1, LINE), (2, PLANE), (3, SPACE)):
        cases += [
            case(f"nn.BatchNorm{rank}d", x, num_features=4, eps=1e-3),
            case(f"nn.BatchNorm{rank}d", x, num_features=4, track_running_stats=False),
            case(f"nn.InstanceNorm{rank}d", x, num_features=4, affine=True),
            case(f"nn.InstanceNorm{rank}d", x, num_features=4, track_running_stats=True),
        ]
    return cases


def padding() -> list[Case]:
    cases = [
        case("F.pad", PLANE, pad=(1, 2, 0, 3)),
        case("F.pad", PLANE, pad=(1, -2, -1, 2), value=1.5),
        case("F.pad", PLANE, pad=(2, 1, 3, 0), mode="reflect"),
        case("F.pad", LINE, pad=(2, 1), mode="replicate"),
        case("F.pad", LINE, pad=(3, 2), mode="circular"),
    ]
    for rank, x in ((1, LINE), (2, PLANE), (3, SPACE)):
        amounts = (1, 2, 0, 1, 2, 1)[: 2 * rank]
        for name in ("CircularPad", "ReflectionPad", "ReplicationPad", "ZeroPad"):
            cases.append(case(f"nn.{name}{rank}d", x, padding=amounts))
        cases.append(case(f"nn.ConstantPad{rank}d", x, padding=amounts, value=-1.5))
    return cases


def pooling() -> list[Case]:
    cases = []
    for rank, x in ((1, LINE), (2, PLANE), (3, SPACE)):
        sizes, targets = (3, 2, 3)[:rank], (3, 4, 2)[:rank]
        average = {"kernel_size": sizes, "stride": 2, "padding": 1}
        cases += [
            *each(f"F.max_pool{rank}d nn.MaxPool{rank}d", x, kernel_size=3, stride=2, padding=1),
            *each(f"F.max_pool{rank}d nn.MaxPool{rank}d", x, kernel_size=sizes, dilation=2, ceil_mode=True),
            *each(f"F.max_pool{rank}d nn.MaxPool{rank}d", x, kernel_size=2, return_indices=True),
            *each(f"F.avg_pool{rank}d nn.AvgPool{rank}d", x, **average),
            *each(f"F.avg_pool{rank}d nn.AvgPool{rank}d", x, **average, ceil_mode=True, count_include_pad=False),
            *each(f"F.lp_pool{rank}d", x.abs(), norm_type=3.0, kernel_size=2),
            *each(f"nn.LPPool{rank}d", x.abs(), norm_type=2.0, kernel_size=2, stride=3),
            case(f"nn.LPPool{rank}d", x.abs(), norm_type=2.0, kernel_size=3, stride=2, ceil_mode=True),
            *(case(f"F.lp_pool{rank}d", x, norm_type=sign * float("inf"), kernel_size=2) for sign in (1, -1)),
            *each(f"F.adaptive_avg_pool{rank}d nn.AdaptiveAvgPool{rank}d", x, output_size=targets),
            *each(f"F.adaptive_max_pool{rank}d nn.AdaptiveMaxPool{rank}d", x, output_size=targets),
            *each(f"F.adaptive_avg_pool{rank}d nn.AdaptiveMaxPool{rank}d", x, output_size=(1,) * rank),
        ]
    return cases


def recurrent() -> list[Case]:
    x, h, c = real(5, 2, 4), real(2, 2, 3), real(2, 2, 3)
    sizes = {"input_size": 4, "hidden_size": 3}
    pair = {"reference": lambda module, x, hx, cx: module(x, (hx, cx))}
    return [
        *each("nn.LSTM nn.GRU nn.RNN", x, **sizes),
        *each("nn.LSTM nn.GRU nn.RNN", x, **sizes, num_layers=2, bidirectional=True, batch_first=True, bias=False),
        *each("nn.GRU nn.RNN", x, h, **sizes, num_layers=2),
        case("nn.LSTM", x, h, c, **sizes, num_layers=2, **pair),
        case("nn.LSTM", x, **sizes, proj_size=2),
        case("nn.RNN", x, **sizes, nonlinearity="relu"),
    ]


def reduction() -> list[Case]:
    x = BATCH
    both = "torch Tensor"

    def names(text: str) -> str:
        return " ".join(f"{space}.{name}" for name in text.split() for space in both.split())

    return [
        *each(names("sum mean prod all any argmax argmin"), x),
        *each(names("sum mean amax amin std var"), x, dim=(0, 2), keepdim=True),
        *each(names("sum mean prod amax amin all any argmax argmin std var"), x, dim=-2),
        *each(names("amax amin argmax argmin"), ODD, dim=1),
        *each(names("sum prod"), DIVISORS, dim=1),
        *each(names("std var"), x, dim=1, correction=0),
        *each(names("std var"), x, dim=1, unbiased=False),
        *each("torch.max torch.min", x),
        *each("torch.max torch.min", x, dim=1, keepdim=True),
        *each("torch.max torch.min", ODD, ODD.flip(2)),
        case("torch.logsumexp", x, dim=(0, 1)),
        *each(names("norm"), x),
        *each(names("norm"), x, p=1, dim=1),
        *each(names("norm"), x, p=3.0, dim=(0, 2), keepdim=True),
        *each(names("norm"), x, p=float("inf"), dim=2),
        *each(names("cumsum cumprod"), x, dim=1),
        *each(names("cumsum"), NUMBERS, dim=0),
        *each(names("all any"), TRUTH, dim=0),
    ]


def resize() -> list[Case]:
    return [
        *each("F.interpolate F.upsample nn.Upsample", PLANE, scale_factor=(1.5, 2.0)),
        *each("F.interpolate F.upsample nn.Upsample", PLANE, size=(4, 13), mode="bilinear"),
        *each("F.interpolate nn.Upsample", PLANE, size=(9, 5), mode="bicubic", align_corners=True),
        *each("F.interpolate nn.Upsample", LINE, scale_factor=1.7, mode="linear"),
        *each("F.interpolate nn.Upsample", SPACE, size=(3, 7, 9), mode="trilinear", align_corners=True),
        case("F.interpolate", PLANE, size=(4, 5), mode="area"),
        *each("F.upsample_nearest nn.UpsamplingNearest2d", PLANE, size=(7, 20)),
        *each("F.upsample_bilinear nn.UpsamplingBilinear2d", PLANE, scale_factor=2),
        *each("F.pixel_shuffle nn.PixelShuffle torch.pixel_shuffle", PLANE, upscale_factor=2),
        *each("F.pixel_unshuffle nn.PixelUnshuffle torch.pixel_unshuffle", PLANE, downscale_factor=3),
        *each("F.channel_shuffle nn.ChannelShuffle torch.channel_shuffle", PLANE, groups=2),
    ]


def shape() -> list[Case]:
    x, m = PLANE, MATRIX
    sized = {"reference": lambda x, shape: x.expand(shape)}
    parts = {"reference": lambda x, indices, dim: torch.tensor_split(x, indices, dim)}
    like = real(7, 5)
    return [
        *each("Tensor.reshape Tensor.view torch.reshape", x, shape=(2, -1, 27), reference=torch.reshape),
        *each("Tensor.reshape_as Tensor.view_as", m, like),
        *each("torch.flatten nn.Flatten", x),
        *each("torch.flatten nn.Flatten", x, start_dim=1, end_dim=2),
        *each("Tensor.unflatten torch.unflatten", x, dim=3, sizes=(3, -1)),
        case("nn.Unflatten", x, dim=1, unflattened_size=(2, 2)),
        *each("Tensor.permute torch.permute", x, dims=(3, 0, 2, 1)),
        *each("Tensor.transpose torch.transpose", x, dim0=1, dim1=-1),
        *each("Tensor.t torch.t", m),
        case("torch.movedim", x, source=(1, 0), destination=(3, 1)),
        *each("Tensor.squeeze torch.squeeze", real(2, 1, 3, 1)),
        *each("Tensor.squeeze torch.squeeze", real(2, 1, 3, 1), dim=1),
        *each("Tensor.unsqueeze torch.unsqueeze", m, dim=-1),
        *each("Tensor.expand torch.broadcast_to", m, shape=(2, -1, 7), **sized),
        case("Tensor.expand_as", VECTOR, m),
        case("Tensor.repeat", m, repeats=(2, 1, 3)),
        case("torch.tile", m, dims=(2,)),
        case("torch.repeat_interleave", m, repeats=3, dim=1),
        *each("torch.cat torch.concat", m, SQUARE, dim=1, reference=lambda *t, dim: torch.cat(t, dim)),
        case("torch.stack", m, m + 1, dim=1, reference=lambda *t, dim: torch.stack(t, dim)),
        *each("Tensor.chunk torch.chunk", x, chunks=4, dim=3),
        *each("Tensor.split torch.split", x, split_size_or_sections=(2, 4), dim=2,
              reference=lambda x, split_size_or_sections, dim: torch.split(x, split_size_or_sections, dim)),
        *each("Tensor.split torch.split", m, split_size=3, dim=0,
              reference=lambda x, split_size, dim: torch.split(x, split_size, dim)),
        case("torch.tensor_split", m, indices=(2, 5), dim=1, **parts),
        *each("Tensor.unbind torch.unbind", x, dim=1),
        *each("Tensor.flip torch.flip", x, dims=(1, 3)),
        *each("Tensor.roll torch.roll", x, shifts=(1, -4), dims=(0, 3)),
        case("Tensor.size", x, dim=-2),
    ]  # fmt: skip


def softmax() -> list[Case]:
    names = "F.softmax Tensor.softmax nn.Softmax torch.softmax F.log_softmax nn.LogSoftmax torch.log_softmax"
    return [
        *each(f"{names} F.softmin nn.Softmin", PLANE, dim=1),
        *each(f"{names} F.softmin nn.Softmin", PLANE, dim=-1),
        case("nn.Softmax2d", PLANE),
    ]


def folding() -> list[Case]:
    window = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
    return [
        *each("F.unfold nn.Unfold", PLANE, kernel_size=(3, 3), padding=(1, 1)),
        *each("F.unfold nn.Unfold", PLANE, **window),
        *each("F.unfold nn.Unfold", PLANE[0], **window),
        *each("F.fold nn.Fold", real(2, 12, 21), output_size=(6, 9), **window),
        *each("F.fold nn.Fold", real(8, 6), output_size=(4, 6), kernel_size=(2, 2), stride=(2, 2)),
    ]


def sampling() -> list[Case]:
    points, deep = torch.rand(2, 3, 5, 2) * 2.4 - 1.2, torch.rand(1, 2, 3, 4, 3) * 2.4 - 1.2
    return [
        case("F.grid_sample", PLANE, points, align_corners=False),
        case("F.grid_sample", PLANE, points, mode="bicubic", padding_mode="border", align_corners=True),
        case("F.grid_sample", PLANE, points, mode="nearest", padding_mode="reflection", align_corners=False),
        case("F.grid_sample", SPACE, deep, mode="bilinear", align_corners=True),
        case("F.affine_grid", real(2, 2, 3), size=(2, 3, 4, 5), align_corners=True),
        case("F.affine_grid", real(1, 3, 4), size=(1, 1, 2, 1, 3), align_corners=False),
    ]


def _assigned(x: Tensor, where: Any, value: Any) -> Tensor:
    made = x.clone()
    made[where] = value
    return made


def scattering() -> list[Case]:
    end = 2147483647
    column, rows, corner, one = real(5), real(4, 2, 9), real(2, 1), torch.tensor(0.5)
    several = {"dims": (0, 2), "starts": (0, -4), "ends": (0, end), "steps": (0, 1), "selects": (1, end)}
    updates, mask, few = real(2, 7), MATRIX > 0, VECTOR > 0

    def put(indices: tuple[Any, ...]) -> dict[str, Any]:
        return {"indices": indices[0], "reference": lambda x, values, indices: x.index_put((indices,), values)}

    def written(where: Any) -> Callable[..., Any]:
        return lambda x, value, **_: _assigned(x, where, value)

    return [
        case(
            "Tensor.slice_copy", MATRIX, column, dim=1, select=1, start=0, end=0, step=0, reference=written(np.s_[:, 1])
        ),
        case("Tensor.slice_copy", PLANE, rows, dim=2, start=1, end=end, step=3, reference=written(np.s_[:, :, 1::3])),
        case("Tensor.slice_copy", PLANE, real(4, 1, 9), **several, reference=written(np.s_[1, :, -4:])),
        case(
            "Tensor.slice_copy", MATRIX, NUMBERS[0, 0], dim=0, start=-2, end=end, step=1, reference=written(np.s_[-2:])
        ),
        case("torch.slice_scatter", MATRIX, real(5, 2), dim=1, start=1, end=5, step=2),
        case("torch.slice_scatter", MATRIX, real(3, 7), dim=0, start=2),
        case("torch.select_scatter", PLANE, real(2, 4, 9), dim=2, index=-1),
        case("Tensor.copy", MATRIX, corner[0], reference=lambda x, y: y.expand_as(x).clone()),
        case("Tensor.index_put", MATRIX, updates, **put((whole(0, 4, 2),))),
        case("Tensor.index_put", MATRIX, one, **put((mask,))),
        case("Tensor.index_put", VECTOR, real(1), **put((few,))),
        case("torch.scatter_add", MATRIX, dim=1, index=whole(0, 6, 4, 9), src=real(5, 9)),
        case("torch.scatter", MATRIX, dim=0, index=torch.tensor([[0, 4, 2], [1, 3, 0]]), src=real(2, 4)),
    ]


def vectors() -> list[Case]:
    return [
        case("F.pairwise_distance", MATRIX, real(5, 7)),
        case("F.pairwise_distance", MATRIX, VECTOR, p=1.0, keepdim=True),
        *each("F.cosine_similarity nn.CosineSimilarity", PLANE, real(2, 4, 6, 9)),
        *each("F.cosine_similarity nn.CosineSimilarity", MATRIX, VECTOR, dim=-1, eps=0.5),
        case("torch.cross", real(2, 3), real(2, 3), dim=1),
        case("torch.cross", real(3, 4), real(3, 4), dim=0),
        case("torch.linalg_cross", real(2, 3), real(2, 3), reference=torch.linalg.cross),
    ]


FAMILIES = {
    "activation": activations, "attention": attention, "convolution": convolutions, "creation": creation,
    "elementwise": elementwise, "embedding": embedding, "folding": folding, "identity": identity,
    "indexing": indexing, "matrix": matrix,
    "normalization": normalization, "padding": padding, "pooling": pooling, "recurrent": recurrent,
    "reduction": reduction, "resize": resize, "sampling": sampling, "scattering": scattering,
    "shape": shape, "softmax": softmax,
    "vectors": vectors,
}  # fmt: skip


# What PyTorch computes.


def settled(module: nn.Module) -> nn.Module:
    """The module as after a training, for use."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.dtype.is_floating_point:
            with torch.no_grad():
                tensor.copy_(torch.rand_like(tensor) + 0.5 if name == "running_var" else 0.5 * torch.randn_like(tensor))
    return module.eval()


def computed(one: Case) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The results of an operator, and the tensors of its own."""
    space, _, name = one.type.partition(".")
    with torch.no_grad():
        if space == "nn":
            module = settled(getattr(nn, name)(**one.arguments))
            apply = one.reference or (lambda module, *operands: module(*operands))
            own = {key: tensor for key, tensor in module.state_dict().items() if tensor.dtype.is_floating_point}
            return flat(apply(module, *one.operands)), own
        function = one.reference or getattr({"torch": torch, "F": F, "Tensor": Tensor}[space], name)
        return flat(function(*one.operands, **one.arguments)), {}


def flat(value: Any) -> list[Tensor]:
    """The tensors in nested tuples and lists, in order; numbers as tensors."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, int):
        return [torch.tensor(value)]
    return [tensor for element in value for tensor in flat(element)]


# The files.


def spelt(value: Any) -> str:
    """A parameter as the format spells it."""
    if isinstance(value, tuple):
        return f"({','.join(map(spelt, value))})"
    return str(value)


def annotation(tensor: Tensor) -> str:
    """The type of a tensor as the format spells it."""
    return f"({','.join(map(str, tensor.shape))}){TYPES[tensor.dtype]}"


class Writer:
    """Collects the operators of a network, their tensors, its inputs and its outputs."""

    def __init__(self) -> None:
        self.inputs: dict[int, Tensor] = {}
        self.lines: list[str] = []
        self.tensors: dict[str, Tensor] = {}
        self.outputs: list[Tensor] = []

    def operand(self, tensor: Tensor) -> str:
        """The name of an input, which is one however often it is used."""
        self.inputs.setdefault(id(tensor), tensor)
        return f"x{list(self.inputs).index(id(tensor))}"

    def add(self, number: int, one: Case) -> None:
        """An operator and its results."""
        results, own = computed(one)
        operands = [self.operand(tensor) for tensor in one.operands]
        words = []
        for name, value in one.arguments.items():
            if isinstance(value, Tensor):
                operands.append(self.operand(value))
                words.append(f"${name}={operands[-1]}")
            else:
                words.append(f"{name}={spelt(value)}")
        words += [f"@{name}={annotation(tensor)}" for name, tensor in own.items()]
        self.tensors |= {f"op{number}.{name}": tensor for name, tensor in own.items()}
        names = [f"y{len(self.outputs) + i}" for i in range(len(results))]
        counts = f"{len(operands)} {len(names)}"
        self.lines.append(" ".join([one.type, f"op{number}", counts, *operands, *names, *words]))
        self.outputs += results

    def write(self, target: Path) -> None:
        """The three files; `target` is the path without `.pnnx.param`."""
        lines = [f"pnnx.Input in{i} 0 1 x{i} #x{i}={annotation(x)}" for i, x in enumerate(self.inputs.values())]
        lines += self.lines
        lines += [f"pnnx.Output out{i} 1 0 y{i}" for i in range(len(self.outputs))]
        operands = len(self.inputs) + len(self.outputs)
        Path(f"{target}.pnnx.param").write_text("\n".join(["7767517", f"{len(lines)} {operands}", *lines, ""]))
        with zipfile.ZipFile(f"{target}.pnnx.bin", "w", zipfile.ZIP_STORED) as archive:
            for name, tensor in self.tensors.items():
                archive.writestr(zipfile.ZipInfo(name), tensor.contiguous().numpy().tobytes())
        arrays = {f"input_{i}": x.numpy() for i, x in enumerate(self.inputs.values())}
        arrays |= {f"output_{i}": x.numpy() for i, x in enumerate(self.outputs)}
        np.savez_compressed(f"{target}.npz", **arrays)


def make(family: str, folder: Path, seed: int = 0) -> None:
    """Make the files of one family in `folder`."""
    torch.manual_seed(1000 * seed + sum(map(ord, family)))
    writer = Writer()
    for number, one in enumerate(FAMILIES[family]()):
        writer.add(number, one)
    writer.write(folder / family)


def main(families: Iterable[str]) -> None:
    """Make the files of the families named, or of all."""
    HERE.mkdir(exist_ok=True)
    for family in families or FAMILIES:
        make(family, HERE)


if __name__ == "__main__":
    main(sys.argv[1:])
