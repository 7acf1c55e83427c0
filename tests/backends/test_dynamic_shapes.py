"""One library for every size: networks with dynamic dimensions compared with what TVM computes for sizes that are
known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest
import tvm
import tvm_ffi
from pass_runs import lower
from relax_programs import network_of, opened, program
from tvm import s_tir, tirx
from virtual_machine import run_in_virtual_machine

from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.ir.attributes import RULE
from nnefc.ir.network import DynamicDimension, Network
from nnefc.loader import Model, RunError
from nnefc.passes.tir.common.expressions import is_number
from nnefc.symbolic.dims import Range, ranges
from nnefc.targets.machine.any_target import parse_any_target

RNG = np.random.default_rng(11)


def real(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


NETWORKS: Mapping[str, tuple[str, Mapping[str, np.ndarray], Sequence[Mapping[str, int]]]] = {
    "layers of perceptrons, softmax": (
        """x[n, 33] -> y
        a = R.matmul(x, w)
        b = R.nn.relu(R.add(a, b0))
        c = R.matmul(b, v)
        y = R.nn.softmax(c)""",
        {"w": real(33, 64), "b0": real(64), "v": real(64, 20)},
        [{"n": size} for size in (1, 2, 13, 14, 15, 100)],
    ),
    "convolutions in blocks, pooling, mean": (
        """x[n, 3, h, w] -> y
        a = R.nn.conv2d(x, u, padding=1, strides=2)
        b = R.nn.relu(a)
        c = R.nn.conv2d(b, v, padding=1)
        d = R.nn.max_pool2d(c, (3, 3), (2, 2), padding=(1, 1))
        e = R.nn.conv2d(d, p)
        f = R.nn.conv2d(e, q, padding=1, groups=24)
        y = R.mean(f, [2, 3])""",
        {"u": real(16, 3, 3, 3), "v": real(32, 16, 3, 3), "p": real(24, 32, 1, 1), "q": real(24, 1, 3, 3)},
        [{"n": n, "h": h, "w": w} for n, h, w in ((1, 32, 32), (2, 33, 17), (1, 1, 1), (3, 64, 65), (1, 5, 90))],
    ),
    "strides, groups and transposed convolutions": (
        """x[n, 5, h, w] -> y
        a = R.nn.conv2d(x, u, padding=3, strides=2)
        b = R.nn.relu(a)
        c = R.nn.conv2d(b, v, padding=1, strides=2, groups=2)
        d = R.nn.avg_pool2d(c, (2, 2), (1, 1), padding=(1, 1), ceil_mode=False)
        e = R.nn.conv2d(d, p, dilation=2, padding=2)
        y = R.nn.conv2d_transpose(e, q, strides=2, padding=1)""",
        {"u": real(32, 5, 7, 7), "v": real(48, 16, 3, 3), "p": real(20, 48, 3, 3), "q": real(20, 6, 4, 4)},
        [{"n": n, "h": h, "w": w} for n, h, w in ((1, 8, 8), (2, 37, 21), (1, 2, 90))],
    ),
    "windows without padding along one of two dimensions that is open": (
        """x[n, 24, 9, w] -> y
        a = R.nn.conv2d(x, q, groups=24)
        y = R.nn.max_pool2d(a, (3, 3))""",
        {"q": real(24, 1, 3, 3)},
        [{"n": n, "w": w} for n, w in ((1, 5), (2, 22))],
    ),
    "Winograd's algorithm": (
        """x[n, 64, h, w] -> y
        a = R.nn.conv2d(x, u, padding=1)
        y = R.nn.relu(a)""",
        {"u": real(64, 64, 3, 3)},
        [{"n": n, "h": h, "w": w} for n, h, w in ((1, 1, 1), (2, 13, 22))],
    ),
    "a residual block": (
        """x[n, 16, h, w] -> y
        a = R.nn.conv2d(x, u, padding=1)
        b = R.nn.relu(a)
        c = R.nn.conv2d(b, v, padding=1)
        d = R.add(c, x)
        y = R.nn.relu(d)""",
        {"u": real(16, 16, 3, 3), "v": real(16, 16, 3, 3)},
        [{"n": n, "h": h, "w": w} for n, h, w in ((1, 7, 9), (1, 28, 28), (2, 15, 31))],
    ),
    "attention": (
        """x[n, s, 32] -> y
        q = R.matmul(x, wq)
        k = R.matmul(x, wk)
        t = R.permute_dims(k, [0, 2, 1])
        a = R.nn.softmax(R.matmul(q, t))
        b = R.matmul(a, x)
        c = R.add(b, x)
        y = R.nn.layer_norm(c, g, z, axes=[-1], epsilon=1e-5)""",
        {"wq": real(32, 32), "wk": real(32, 32), "g": np.ones(32, np.float32), "z": np.zeros(32, np.float32)},
        [{"n": n, "s": s} for n, s in ((1, 1), (1, 17), (2, 64), (3, 5))],
    ),
    "sums, minima, maxima and transpositions along dynamic dimensions": (
        """x[a, b] -> y; z; t
        m = R.max(x, [0], keepdims=True)
        s = R.subtract(x, m)
        y = R.sum(R.exp(s), [1])
        z = R.mean(s, [-1])
        t = R.permute_dims(s, [1, 0])""",
        {},
        [{"a": a, "b": b} for a, b in ((1, 1), (5, 7), (64, 33), (3, 200))],
    ),
    "minima and maxima of every element of a batch": (
        """x[n, 6, 5, 64] -> y; z
        y = R.max(x, [1, 2])
        z = R.min(x, [1])""",
        {},
        [{"n": n} for n in (1, 5, 11)],
    ),
    "rows, softmax and normalizations along dynamic dimensions": (
        """x[n, h, w] -> y; z; t; u
        y = R.nn.softmax(x)
        m = R.mean(x, [1, 2], keepdims=True)
        c = R.subtract(x, m)
        d = R.mean(R.multiply(c, c), [1, 2], keepdims=True)
        z = R.multiply(c, R.rsqrt(R.add(d, R.const(1e-5, "float32"))))
        t = R.max(x, [2])
        u = R.argmax(x, 2)""",
        {},
        [{"n": n, "h": h, "w": w} for n, h, w in ((1, 1, 1), (2, 3, 16), (1, 2, 101))],
    ),
    "attention of several heads": (
        """x[n, 2, s, 24]; k[n, 2, t, 24] -> y
        p = R.matmul(x, R.permute_dims(k, [0, 1, 3, 2]))
        a = R.nn.softmax(p)
        y = R.matmul(a, k)""",
        {},
        [{"n": n, "s": s, "t": t} for n, s, t in ((1, 1, 1), (2, 13, 33), (1, 50, 16))],
    ),
    "products of one and of few columns": (
        """x[n, 10] -> y; z; t
        a = R.matmul(x, w)
        y = R.add(a, R.const(0.5, "float32"))
        z = R.matmul(x, v)
        t = R.permute_dims(R.matmul(x, u), [1, 0])""",
        {"w": real(10, 1), "v": real(10, 3), "u": real(10, 5)},
        [{"n": n} for n in (7, 16, 117, 128)],
    ),
    "joined tensors": (
        """x[n, 4, w] -> y
        a = R.nn.relu(x)
        b = R.exp(x)
        c = R.concat((a, b), axis=1)
        y = R.concat((c, c), axis=2)""",
        {},
        [{"n": n, "w": w} for n, w in ((1, 1), (2, 9), (3, 32))],
    ),
}


def network(name: str, sizes: Mapping[str, int] | None = None) -> Network:
    """The network, with dynamic dimensions or with these sizes."""
    text, constants, examples = NETWORKS[name]
    for dimension in examples[0]:
        known = f'"{dimension}"' if sizes is None else str(sizes[dimension])
        head, _, tail = text.partition("->")
        text = head.replace(f"[{dimension},", f"[{known},").replace(f" {dimension},", f" {known},")
        text = text.replace(f" {dimension}]", f" {known}]") + "->" + tail
    head, _, tail = text.partition("\n")
    given, _, made = head.partition("->")
    text = given + "->" + made.replace("; ", ", ") + "\n" + tail
    return opened(network_of(program(text, **constants)))


@cache
def machine() -> object:
    return parse_any_target("llvm", None)


@cache
def open_model(name: str) -> Model:
    return compile_network(network(name), machine()).load()


def inputs(model: Model, sizes: Mapping[str, int]) -> list[np.ndarray]:
    shapes = [[sizes.get(str(size), size) for size in tensor.shape] for tensor in model.inputs]
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


CASES = [
    pytest.param(name, sizes, marks=[] if sizes in (examples[0], examples[-1]) else pytest.mark.slow)
    for name, (_, _, examples) in NETWORKS.items()
    for sizes in examples
]


@pytest.mark.parametrize(("name", "sizes"), CASES, ids=lambda value: value if isinstance(value, str) else str(value))
@pytest.mark.sample(3)
def test_every_size_gives_what_tvm_computes_for_that_size(name: str, sizes: Mapping[str, int]) -> None:
    model = open_model(name)
    given = inputs(model, sizes)
    made = model(*given)
    expected = run_in_virtual_machine(network(name, sizes).module, given)
    for result, other in zip([made] if isinstance(made, np.ndarray) else made, expected, strict=True):
        assert result.shape == other.shape
        np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["strides, groups and transposed convolutions", "Winograd's algorithm", "attention"])
@pytest.mark.sample(2)
def test_dynamic_sizes_are_computed_by_the_rules_for_known_sizes(name: str) -> None:
    sizes = {"n": 2, "h": 32, "w": 48, "s": 48}
    opened_rules, known_rules = (rules_of(network(name, given)) for given in (None, sizes))
    assert opened_rules == known_rules


def test_parts_of_long_sums_ask_for_no_sizes_of_loops_around_them() -> None:
    """Conditions on them would stand in the innermost loop."""
    text = """x["n", 480, "h", "w"] -> z
    y = R.nn.conv2d(x, u)
    z = R.nn.conv2d(y, v, padding=1, groups=32)"""
    given = opened(network_of(program(text, u=real(32, 480, 1, 1), v=real(32, 1, 3, 3))))
    seen: dict[str, tvm.IRModule] = {}
    with ranges({d.var: d.values for d in given.dynamic_dimensions}):
        lower(given, backend_of(machine()), seen.__setitem__)
    (func,) = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]
    conditions: list[tirx.Expr] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlockRealize, lambda step: conditions.append(step.predicate)))
    assert all(is_number(condition, 1) for condition in conditions)


def rules_of(given: Network) -> list[str]:
    """The schedule rules of a network's kernels, but for the last one, which takes all that no other one knows."""
    with ranges({d.var: d.values for d in given.dynamic_dimensions}):
        made = lower(given, backend_of(machine()))
    rules = [str(kernel.scheduled.attrs[RULE]) for kernel in made.kernels]
    return sorted(rule for rule in rules if rule != "FallbackRule")


def test_a_library_names_what_is_open() -> None:
    model = open_model("attention")
    assert [str(tensor) for tensor in (*model.inputs, *model.outputs)] == [
        "x: float32[n, s, 32]",
        "y0: float32[n, s, 32]",
    ]
    assert [(d.name, d.minimum, d.maximum, d.multiple) for d in model.dimensions] == [(n, 1, 4096, 1) for n in "ns"]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4097, 33), 'dimension 0 of input "x" is 4097, but the network takes 1 to 4096 for "n"'),
        ((0, 33), 'dimension 0 of input "x" is 0, but the network takes 1 to 4096 for "n"'),
        ((5, 32), 'dimension 1 of input "x" is 32, but the network has 33'),
        ((33,), r"has the shape \[33\], but the model has x: float32\[n, 33\]"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(shape: tuple[int, ...], message: str) -> None:
    model = open_model("layers of perceptrons, softmax")
    with pytest.raises(RunError, match=message):
        model(np.zeros(shape, np.float32))
    assert model(np.zeros((2, 33), np.float32)).shape == (2, 20)


def test_sessions_are_reported_sizes_when_they_change_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a refusal, after which a session has no sizes, and in the session of another one's."""
    model = open_model("layers of perceptrons, softmax")
    reported = []
    session = type(model._session)
    real_resize = session._resize
    monkeypatch.setattr(session, "_resize", lambda self, inputs: reported.append(1) or real_resize(self, inputs))
    a, b = np.ones((5, 33), np.float32), np.ones((6, 33), np.float32)
    assert [model(x).shape[0] for x in (a, a, b, b, a)] == [5, 5, 6, 6, 5]
    assert len(reported) == 3
    with pytest.raises(RunError):
        model(np.ones((5, 32), np.float32))
    assert model(a).shape == (5, 20)
    with model.session() as other:
        assert other(a).shape == (5, 20)
    assert len(reported) == 6


def test_memory_is_reserved_by_the_names_of_dimensions() -> None:
    model = open_model("layers of perceptrons, softmax")
    model.reserve({"n": 100})
    with pytest.raises(RunError, match='no dynamic dimension "batch": its dynamic dimensions are n'):
        model.reserve({"batch": 1})
    with pytest.raises(RunError, match='a size is 5000, but the network takes 1 to 4096 for "n"'):
        model.reserve({"n": 5000})
    model.reserve()
    assert model(np.zeros((101, 33), np.float32)).shape == (101, 20)


def test_dimensions_of_one_name_are_one_size() -> None:
    module = program('x["n", 4], y["n", 4] -> z\nz = R.add(x, y)'.replace("], ", "]; "))
    model = compile_network(opened(network_of(module)), machine()).load()
    with pytest.raises(RunError, match='is 3, but another dimension "n" is 2'):
        model(np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32))


def test_inputs_that_a_window_does_not_fit_into_are_refused() -> None:
    module = program('x[1, 16, "h", 8] -> y\ny = R.nn.conv2d(x, w)', w=real(16, 16, 5, 5))
    model = compile_network(opened(network_of(module)), machine()).load()
    with pytest.raises(RunError, match="no result for inputs as small as these"):
        model(np.zeros((1, 16, 3, 8), np.float32))
    assert model(np.zeros((1, 16, 5, 8), np.float32)).shape == (1, 16, 1, 4)


def test_sizes_beyond_what_a_tensor_may_have_are_refused() -> None:
    """Of inputs, of what follows from them, and of numbers that 64 bits do not hold; the library is fine afterwards."""
    module = program(
        'x["n", 1]; y[1, "m"] -> z\na = R.add(x, y)\nb = R.exp(a)\nz = R.sum(R.matmul(b, R.permute_dims(b)))'
    )
    network = opened(network_of(module))
    vast = tuple(DynamicDimension(d.name, d.var, Range(1, 1 << 40, 4)) for d in network.dynamic_dimensions)
    model = compile_network(Network(**{**network.__dict__, "dynamic_dimensions": vast}), machine()).load()
    for n, m, name in ((1 << 31, 1, "x"), (1, 1 << 31, "y"), (1 << 40, 1 << 40, "x"), (1 << 16, 1 << 15, "x")):
        axis = "01"[name == "y"]
        size = n if name == "x" else m
        message = f'more than 2147483647 elements: dimension {axis} of input "{name}" is {size}$'
        with pytest.raises(RunError, match=message):
            resize(model, [(n, 1), (1, m)])
        with pytest.raises(RunError, match="more than 2147483647 elements"):
            model.reserve({"n": n, "m": m})
    ones = np.ones((3, 1), np.float32)
    np.testing.assert_allclose(model(ones, ones.T), 27 * np.exp(4), rtol=1e-5)


def resize(model: Model, shapes: Sequence[tuple[int, ...]]) -> None:
    tensors = tuple(type(t)(t.name, t.dtype, shape) for t, shape in zip(model.inputs, shapes, strict=True))
    model._session._resize(tensors)
