"""Sorts operators of all formats into kinds, which have a colour each."""

from __future__ import annotations

import re

__all__ = ["KINDS", "kind_of", "paint"]

KINDS = {
    "boundary": (215, 8),
    "convolution": (212, 70),
    "matrix product": (262, 60),
    "attention": (292, 55),
    "normalization": (172, 45),
    "activation": (8, 70),
    "pooling": (140, 45),
    "reduction": (95, 45),
    "elementwise": (44, 80),
    "shape": (28, 45),
    "quantization": (325, 55),
    "control": (0, 0),
    "group": (200, 25),
    "other": (70, 25),
}
"""Hue and saturation of each kind; lightness is the page's, which may be dark."""

_PATTERNS = (
    ("boundary", r"^(input|output|external|variable|placeholder)$"),
    ("control", r"^(if|loop|scan|while)$"),
    ("attention", r"attention|scaled_dot|^sdpa"),
    ("quantization", r"quant|qlinear|_int8|integer$"),
    ("convolution", r"conv|deconv|multiply_tiles|transform_(input|output|filter)"),
    ("matrix product", r"matmul|gemm|linear|einsum|^dense|bmm|lstm|gru|rnn"),
    ("normalization", r"norm|lrn"),
    ("pooling", r"pool"),
    ("activation", r"relu|sigmoid|tanh|elu$|gelu|silu|swish|softmax|softplus|mish|^erf$|clip|clamp|hard"),
    ("reduction", r"reduce|^sum|^mean$|argmax|argmin|^max$|^min$|topk|cumsum|nonzero|nms"),
    (
        "shape",
        r"reshape|transpose|permute|concat|stack|split|slice|squeeze|expand|pad|tile|gather|scatter|flatten|resize|view"
        r"|upsample|depth|shape|cast|copy|identity|layout|select|index|^part$|^box$|interpolate|chunk|roll",
    ),
    (
        "elementwise",
        r"add|sub|mul|div|pow|sqrt|exp|log|abs|neg|where|equal|greater|less|not|and|or$|round|floor|sin|cos",
    ),
)


def kind_of(title: str) -> str:
    """Returns the kind of an operator, or of several that are one kernel: that of the first which computes most.

    Args:
        title: `Conv`, `nn.conv2d` or `conv + batch_normalization + relu`.
    """
    names = [re.sub(r"^.*\.", "", part.strip().lower()) for part in title.split("+")]
    for kind, pattern in _PATTERNS:
        if any(re.search(pattern, name) for name in names):
            return kind
    return "other"


def paint(kind: str) -> str:
    """Returns the attributes that colour an element of SVG: in a page by its theme, in a notebook as they are."""
    hue, saturation = KINDS.get(kind, KINDS["other"])
    return f'class="painted" style="--h:{hue};--s:{saturation}%" fill="hsl({hue} {saturation}% 84%)"'
