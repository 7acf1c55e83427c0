"""Attention as one kernel: found in the forms that exporters write, right on all shapes, and nowhere else."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import numpy as np
import pytest
from pass_runs import lower, manager_of
from relax_programs import Case, Graph, Value, build, check, program, summary, target
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from nnefc.backends import backend_of
from nnefc.passes.graph.attention.fuse_attention import fuse_attention
from nnefc.passes.graph.attention.mask_bounds import with_mask_bounds
from nnefc.passes.graph.attention.match_attention import find_attention
from nnefc.passes.graph.attention.terms import QUERY, heads_sharing, terms_of
from nnefc.passes.tir.common.expressions import substituted

_rng = np.random.default_rng(5)

MACHINES = [
    ("llvm", 2),
    *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("llvm", "llvm -mcpu=haswell")),
]
"""Machines, and of how many cases one is run."""


def numbers(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


def heads(graph: Graph, x: Value, count: int, order: tuple[int, ...] = (0, 2, 1, 3)) -> Value:
    """`[N, L, H E]` as `[N, H, L, E]`."""
    batch, length, width = x.shape
    return graph.transpose(graph.reshape(x, (batch, length, count, width // count)), order)


def scaled(graph: Graph, x: Value, factor: float) -> Value:
    return graph.binary("multiply", x, graph.constant(np.float32(factor)))


def where(graph: Graph, condition: Value, x: Value, y: Value) -> Value:
    made = np.where(condition.array, x.array, y.array)
    return graph.emit(relax.op.where(condition.expr, x.expr, y.expr), made)


def minus_infinity(graph: Graph) -> Value:
    return graph.constant(np.array(-np.inf, np.float32))


def with_added_mask(graph: Graph, q: Value, k: Value, v: Value, mask: Value) -> Value:
    """As exporters of BERT write it."""
    keys = heads(graph, k, 3, (0, 2, 3, 1))
    scores = scaled(graph, graph.matmul(heads(graph, q, 3), keys), 0.3)
    weights = graph.softmax(graph.binary("add", scores, mask), 3)
    made = graph.transpose(graph.matmul(weights, heads(graph, v, 3)), (0, 2, 1, 3))
    return graph.reshape(made, (*q.shape[:2], made.shape[2] * made.shape[3]))


def with_flat_heads(graph: Graph, q: Value, k: Value, v: Value, mask: Value) -> Value:
    """As exporters of OPT write it: batch elements and heads are one axis, but for the mask."""
    batch, length, _ = q.shape
    q, k, v = (heads(graph, scaled(graph, x, 0.5) if x is q else x, 2) for x in (q, k, v))
    q, k, v = (graph.reshape(x, (batch * 2, *x.shape[2:])) for x in (q, k, v))
    scores = graph.matmul(q, graph.transpose(k, (0, 2, 1)))
    shape = scores.shape
    scores = graph.binary("add", graph.reshape(scores, (batch, 2, *shape[1:])), mask)
    weights = graph.softmax(graph.reshape(scores, shape), 2)
    made = graph.reshape(graph.matmul(weights, v), (batch, 2, length, v.shape[2]))
    return graph.reshape(graph.transpose(made, (0, 2, 1, 3)), (batch, length, 2 * v.shape[2]))


def with_repeated_heads(graph: Graph, q: Value, k: Value, v: Value) -> Value:
    """As exporters of Llama write it: keys and values are repeated for the heads that share them, and no key is seen
    before its time.
    """

    def repeated(x: Value) -> Value:
        batch, shared, length, size = x.shape
        apart = graph.reshape(x, (batch, shared, 1, length, size))
        wide = np.broadcast_to(apart.array, (batch, shared, 3, length, size))
        whole = graph.emit(relax.op.broadcast_to(apart.expr, wide.shape), wide)
        return graph.reshape(whole, (batch, shared * 3, length, size))

    scores = graph.matmul(q, graph.transpose(repeated(k), (0, 1, 3, 2)))
    past = k.shape[2] - q.shape[2]
    seen = graph.constant(np.tri(q.shape[2], k.shape[2], past, bool)[None, None])
    shown = where(graph, seen, scaled(graph, scores, 0.2), minus_infinity(graph))
    return graph.matmul(graph.softmax(shown, 3), repeated(v))


def with_parts_of_one_product(graph: Graph, x: Value) -> Value:
    """As exporters of ViT write it: queries, keys and values are parts of one tensor."""
    batch, length, width = x.shape
    parts = graph.transpose(graph.reshape(x, (batch, length, 3, 2, width // 6)), (2, 0, 3, 1, 4))
    q, k, v = (graph.reshape(part, part.shape[1:]) for part in graph.split(parts, [1, 2], 0))
    weights = graph.softmax(graph.matmul(scaled(graph, q, 0.4), graph.transpose(k, (0, 1, 3, 2))), 3)
    return graph.reshape(graph.transpose(graph.matmul(weights, v), (0, 2, 1, 3)), (batch, length, width // 3))


def capped(graph: Graph, q: Value, k: Value, v: Value, mask: Value) -> Value:
    """A soft cap, a mask of booleans, and the steps of a softmax that gives zeros where nothing is seen."""
    scores = graph.matmul(q, graph.transpose(k, (0, 2, 1)))
    scores = scaled(graph, graph.unary("tanh", scaled(graph, scores, 1 / 3)), 3)
    scores = where(graph, mask, scores, minus_infinity(graph))
    highest = graph.binary("maximum", graph.reduce("max", scores, [2]), graph.constant(np.finfo(np.float32).min))
    powers = graph.unary("exp", graph.binary("subtract", scores, highest))
    total = graph.binary("maximum", graph.reduce("sum", powers, [2]), graph.constant(np.float32(1)))
    return graph.matmul(graph.binary("divide", powers, total), v)


def of_chosen(graph: Graph, q: Value, k: Value, v: Value, positions: Value) -> Value:
    """Each batch element has the keys and values of another one, by its number."""
    k, v = (
        graph.emit(relax.op.take(x.expr, positions.expr, 0, "clip"), x.array.take(positions.array, 0, mode="clip"))
        for x in (k, v)
    )
    return with_repeated_heads(graph, q, k, v)


def cases() -> list[Case]:
    made = []
    for batch, queries, keys, size in ((1, 12, 2, 8), (2, 50, 37, 20), (1, 130, 200, 16)):
        q, k, v = numbers(batch, queries, 3 * size), numbers(batch, keys, 3 * size), numbers(batch, keys, 3 * 7)
        mask = numbers(batch, 1, queries if batch == 1 else 1, keys) * 4
        made.append(Case([q, k, v, mask], with_added_mask, name=f"added mask {queries} {keys} {size}"))
    for queries, keys, size in ((15, 9, 12), (49, 64, 33)):
        q, k, v = numbers(2, queries, 2 * size), numbers(2, keys, 2 * size), numbers(2, keys, 2 * size)
        made.append(Case([q, k, v, numbers(2, 1, queries, keys)], with_flat_heads, name=f"flat heads {queries} {keys}"))
    for queries, past, size in ((13, 30, 16), (66, 0, 16), (17, 70, 10), (1, 6, 16), (1, 300, 32), (1, 128, 48)):
        k, v = numbers(1, 2, past + queries, size), numbers(1, 2, past + queries, size)
        name = f"repeated heads {queries} after {past}"
        made.append(Case([numbers(1, 6, queries, size), k, v], with_repeated_heads, name=name))
    for queries in (1, 20):
        k, v, positions = numbers(5, 2, 40, 16), numbers(5, 2, 40, 16), np.array([4, 9, 0], np.int64)
        made.append(Case([numbers(3, 6, queries, 16), k, v, positions], of_chosen, name=f"chosen {queries}"))
    made.append(Case([numbers(1, 197, 6 * 24)], with_parts_of_one_product, name="parts of one product"))
    mask = _rng.random((3, 40, 90)) > 0.3
    mask[1, 3] = mask[2, :, :70] = False
    made.append(Case([numbers(3, 40, 16), numbers(3, 90, 16), numbers(3, 90, 5), mask], capped, name="capped"))
    return made


def hidden_by_constants(graph: Graph, q: Value, k: Value, v: Value, kind: str) -> Value:
    """Scores with a constant that hides keys: those after a query, also those far before it, or what chance chose."""
    queries, keys = q.shape[1], k.shape[1]
    past = keys - queries
    seen = np.tri(queries, keys, past, bool)
    if kind == "window":
        seen &= ~np.tri(queries, keys, past - 20, bool)
    elif kind == "chance":
        seen = np.random.default_rng(5).random((queries, keys)) > 0.9
        seen[:, :7] = seen[:, -7:] = False
        seen[5] = False
    elif kind == "prefix":
        seen[:, :90] = True
    elif kind == "clamped":
        first = np.clip(np.arange(queries) + past - 60, 20, 50)[:, np.newaxis]
        seen = (np.arange(keys) >= first) & (np.arange(keys) < first + 30)
    low = np.float32(-np.inf if kind == "chance" else np.finfo(np.float32).min)
    scores = graph.matmul(q, graph.transpose(k, (0, 2, 1)))
    if kind == "chosen":
        scores = where(graph, graph.constant(seen), scores, graph.constant(low))
    else:
        scores = graph.binary("add", scores, graph.constant(np.where(seen, np.float32(0), low)))
    return graph.matmul(graph.softmax(scores, 2), v)


KINDS = ("causal", "chosen", "window", "chance", "prefix", "clamped")


@pytest.mark.parametrize(
    ("turn", "kinds"), [(0, KINDS[::2]), *(pytest.param(turn, KINDS, marks=pytest.mark.slow) for turn in (0, 1))]
)
def test_hidden_keys_are_left_out_by_blocks(turn: int, kinds: Sequence[str]) -> None:
    made = []
    for number, kind in enumerate(kinds):
        queries, keys = ((130, 130), (70, 300))[(number + turn) % 2]
        q, k, v = numbers(2, queries, 16), numbers(2, keys, 16), numbers(2, keys, 12)
        build_one = functools.partial(hidden_by_constants, kind=kind)
        made.append(Case([q, k, v], build_one, name=f"{kind} {queries} {keys}"))
    with np.errstate(invalid="ignore"):
        check(made)


@pytest.mark.parametrize(("kind", "ends", "firsts"), [("causal", 1, 0), ("window", 1, 1), ("chance", 1, 1)])
def test_what_a_constant_hides_limits_the_keys_of_a_tile(kind: str, ends: int, firsts: int) -> None:
    case = Case([numbers(1, n, 16) for n in (100, 200, 200)], functools.partial(hidden_by_constants, kind=kind))
    with np.errstate(invalid="ignore"):
        module = build([case]).network.module
    program, (found,) = find_attention(module["main"], {})
    terms = terms_of(found, program, {})
    assert terms is not None
    limited = with_mask_bounds(terms)
    assert (len(limited.ends), len(limited.firsts)) == (ends, firsts)
    tables = len(limited.operands) - len(terms.operands)
    assert tables == (2 if kind == "chance" else 0)


def limits_of(seen: np.ndarray) -> tuple[list[list[int]], list[list[int]], int]:
    """The limits of the keys of each query that a constant sets, and how many of them are tables."""
    queries, keys = seen.shape

    def masked(graph: Graph, q: Value, k: Value, v: Value) -> Value:
        scores = where(graph, graph.constant(seen), graph.matmul(q, k), minus_infinity(graph))
        return graph.matmul(graph.softmax(scores, 1), v)

    with np.errstate(invalid="ignore"):
        module = build([Case([numbers(queries, 3), numbers(3, keys), numbers(keys, 3)], masked)]).network.module
    program, (found,) = find_attention(module["main"], {})
    terms = terms_of(found, program, {})
    assert terms is not None
    limited = with_mask_bounds(terms)
    arrays = {buffer: operand.expr.value.numpy() for operand, buffer in limited.operands[len(terms.operands) :]}

    def at(limit: tirx.Expr, query: int) -> int:
        load = functools.partial(substituted_load, arrays)
        return int(Analyzer().simplify(substituted(limit, {QUERY: tirx.IntImm("int64", query)}, load)))

    ends, firsts = ([[at(x, query) for query in range(queries)] for x in xs] for xs in (limited.ends, limited.firsts))
    return ends, firsts, len(arrays)


def substituted_load(arrays: Mapping[tirx.Var, np.ndarray], buffer: tirx.Var, index: Sequence[tirx.Expr]) -> tirx.Expr:
    return tirx.IntImm("int64", int(arrays[buffer][int(index[0])]))


def test_limits_that_stay_the_same_at_their_ends_leave_out_what_no_query_sees() -> None:
    """As those of prefixes that all see, and of windows that stop moving."""
    rng = np.random.default_rng(8)
    keys = np.arange(40)
    for trial in range(40):
        queries = int(rng.integers(2, 50))
        steps = rng.integers(0, 3, (2, queries)) if trial % 4 == 0 else np.ones((2, queries), np.int64)
        rising = np.cumsum(steps, axis=1) - rng.integers(0, 40, (2, 1))
        limits = np.sort(rng.integers(0, 36, (2, 2)), axis=1)
        first, last = (np.clip(x, *limit) for x, limit in zip(rising, limits, strict=True))
        last = np.maximum(last, first)
        seen = (keys >= first[:, np.newaxis]) & (keys <= last[:, np.newaxis])
        ends, firsts, tables = limits_of(seen)
        assert tables == 0 or trial % 4 == 0
        assert [np.clip(x, 0, 40).tolist() for x in ends] == [(last + 1).tolist()]
        assert [np.clip(x, 0, 40).tolist() for x in firsts] == ([first.tolist()] if first.any() else [])


def test_a_low_number_hides_nothing_where_a_row_has_no_other() -> None:
    mask = np.zeros((1, 40, 80), np.float32)
    mask[..., 60:] = mask[0, 3] = np.finfo(np.float32).min

    def masked(graph: Graph, q: Value, k: Value, v: Value) -> Value:
        scores = graph.matmul(q, graph.transpose(k, (0, 2, 1)))
        return graph.matmul(graph.softmax(graph.binary("add", scores, graph.constant(mask)), 2), v)

    check([Case([numbers(1, n, 16) for n in (40, 80, 80)], masked)])


def test_what_a_finite_number_hides_is_seen_where_all_others_are_hidden() -> None:
    """The rows of positions that are padded: their scores are that number, whatever hides keys besides."""
    causal = np.tri(70, dtype=bool)
    padded = np.arange(70) >= 40
    mask = np.where(padded, np.float32(0), np.finfo(np.float32).min)

    def chosen(graph: Graph, q: Value, k: Value, v: Value, pad: Value) -> Value:
        scores = where(graph, graph.constant(causal), graph.matmul(q, k), minus_infinity(graph))
        low = graph.constant(np.float32(-1e9))
        return graph.matmul(graph.softmax(where(graph, pad, scores, low), 1), v)

    def added(graph: Graph, q: Value, k: Value, v: Value) -> Value:
        scores = graph.binary("add", graph.matmul(q, k), graph.constant(mask))
        return graph.matmul(graph.softmax(with_later_hidden(graph, scores), 1), v)

    q, k, v = (numbers(*shape) for shape in ((70, 16), (16, 70), (70, 16)))
    check([Case([q, k, v, padded[np.newaxis]], chosen, name="chosen"), Case([q, k, v], added, name="added")])


def with_later_hidden(graph: Graph, scores: Value) -> Value:
    """Scores with minus infinity at later keys, by a condition on positions."""

    def hide(x: te.Tensor) -> te.Tensor:
        low = tirx.const(-np.inf, "float32")
        return te.compute(x.shape, lambda i, j: tirx.Select(j <= i, x[i, j], low), name="hide")

    seen = np.tri(*scores.shape, dtype=bool)
    return graph.emit_te(hide, scores, np.where(seen, scores.array, -np.inf))


@pytest.mark.parametrize(("machine", "step"), MACHINES)
def test_attention_of_all_forms_agrees_with_numpy_and_is_one_kernel_each(machine: str, step: int) -> None:
    given = cases()
    check(given[::step], machine)
    joined = fuse_attention(build(given).network.module, target(machine))
    assert len(re.findall(r"= attention\d*\(", summary(joined))) == len(given)
    assert "softmax" not in summary(joined) and "matmul" not in summary(joined)


def test_transpositions_around_it_become_how_it_reads_and_writes() -> None:
    case = Case([numbers(2, 50, 60), numbers(2, 37, 60), numbers(2, 37, 60), numbers(2, 1, 1, 37)], with_added_mask)
    joined = fuse_attention(build([case]).network.module, target("llvm"))
    lines = summary(joined).splitlines()
    assert [line.split(" = ")[1].split("(")[0] for line in lines[:-1]] == ["attention", "reshape"]


def test_keys_and_values_of_other_batch_elements_are_read_where_they_lie() -> None:
    k, positions = numbers(5, 2, 40, 16), np.array([3, 1], np.int64)
    case = Case([numbers(2, 6, 1, 16), k, k, positions], of_chosen)
    lines = summary(fuse_attention(build([case]).network.module, target("llvm"))).splitlines()
    assert [line.split(" = ")[1].split("(")[0] for line in lines[:-1]] == ["attention"]


TWICE = """
q[2, 20, 8]; k[2, 8, 30]; v[2, 30, 8] -> {}
s = R.matmul(q, k)
w = R.nn.softmax(s, axis={})
y = R.matmul(w, v)
"""


@pytest.mark.parametrize("text", [TWICE.format("y, w", 2), TWICE.format("y, s", 2), TWICE.format("y", 1)])
def test_what_else_needs_scores_or_weights_keeps_them(text: str) -> None:
    module = program(text)
    assert fuse_attention(module, target("llvm")).same_as(module)


@pytest.mark.parametrize(
    ("queries", "size", "joined"), [(3, 16, False), (1, 20, False), (1, 16, True), (64, 1 << 15, False)]
)
def test_it_stays_products_where_these_are_faster(queries: int, size: int, joined: bool) -> None:
    module = program(f"""
        q[2, {queries}, {size}]; k[2, 30, {size}]; v[2, 30, {size}] -> y
        t = R.permute_dims(k, axes=[0, 2, 1])
        s = R.matmul(q, t)
        w = R.nn.softmax(s, axis=2)
        y = R.matmul(w, v)
    """)
    assert ("attention" in summary(fuse_attention(module, target("llvm")))) == joined


@pytest.mark.parametrize("product", ["R.multiply(q, s)", "R.multiply(s, q)"])
def test_a_factor_that_is_computed_at_run_time_is_multiplied_before(product: str) -> None:
    module = program(f"""
        q[2, 30, 16]; k[2, 30, 16]; v[2, 30, 16]; s[] -> y
        a = {product}
        t = R.permute_dims(k, axes=[0, 2, 1])
        p = R.matmul(a, t)
        w = R.nn.softmax(p, axis=2)
        y = R.matmul(w, v)
    """)
    assert "attention" in summary(fuse_attention(module, target("llvm")))


def test_doubles_and_strict_code_keep_their_scores() -> None:
    text = TWICE.format("y", 2).replace("q[", "q: float64[").replace("k[", "k: float64[").replace("v[", "v: float64[")
    assert "softmax" in summary(fuse_attention(program(text), target("llvm")))
    passes = manager_of(backend_of(target("llvm")), strict=True).passes
    assert "join attention" not in {step.name for step in passes}


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min])
@pytest.mark.sample(1)
def test_rows_of_which_nothing_is_seen_are_what_the_softmax_makes_of_them(hidden: float) -> None:
    """Not numbers of minus infinity, the mean of all values of a number so low that it hides all else."""
    mask = np.zeros((1, 1, 70, 80), np.float32)
    mask[..., 5, :] = mask[..., 60, :] = hidden
    mask[..., 7, :66] = hidden  # nothing is seen in the first block
    q, k, v = (numbers(1, length, 48) for length in (70, 80, 80))
    with np.errstate(invalid="ignore"):
        check([Case([q, k, v, mask], with_added_mask)])


def test_nan_stays_so_where_scores_are_limited() -> None:
    q, k, v, maximum = (numbers(*shape) for shape in ((40, 16), (16, 50), (50, 16), (40, 50)))
    q[3, 2] = maximum[7, 4] = np.nan

    def limited(graph: Graph, q: Value, k: Value, v: Value, maximum: Value) -> Value:
        scores = graph.binary("maximum", graph.matmul(q, k), graph.constant(np.float32(-1e4)))
        return graph.matmul(graph.softmax(graph.binary("minimum", scores, maximum), 1), v)

    case = Case([q, k, v, maximum], limited)
    check([case])
    assert "attention" in summary(fuse_attention(build([case]).network.module, target("llvm")))


def test_nan_spoils_its_own_row_alone() -> None:
    q, k, v = (numbers(1, length, 48) for length in (70, 80, 80))
    q[0, 9, 3], q[0, 11, 20] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        check([Case([q, k, v, np.zeros((1, 1, 1, 80), np.float32)], with_added_mask)])


def test_the_memory_plan_has_no_room_for_scores() -> None:
    length = 600
    case = Case([numbers(1, length, 6 * 8)], with_parts_of_one_product)
    lowered = lower(build([case]).network, backend_of(target("llvm")))
    assert lowered.plan.workspace_bytes < 4 * length * 6 * 8 * 2


def test_heads_of_a_single_query_share_the_keys_that_they_are_repeated_from() -> None:
    q, k = numbers(1, 6, 1, 16), numbers(1, 2, 40, 16)
    module = build([Case([q, k, k], with_repeated_heads)]).network.module
    program, (found,) = find_attention(module["main"], {})
    terms = terms_of(found, program, {})
    assert terms is not None
    assert heads_sharing(terms) == 3


def calls_of(function: Callable[[], object]) -> int:
    """How many functions of Python a function calls."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_a_long_chain_of_steps_takes_time_in_proportion_to_its_length() -> None:
    def chain(steps: int) -> Callable[[], object]:
        lines = [f"x{n + 1} = R.add(x{n}, R.const(1.0, 'float32'))" for n in range(steps)]
        text = "\n".join(["q[4, 5]; k[5, 6]; v[6, 4] -> y", "x0 = R.matmul(q, k)", *lines,
                          f"w = R.nn.softmax(x{steps}, axis=-1)", "y = R.matmul(w, v)"])  # fmt: skip
        module = program(text)
        return lambda: fuse_attention(module, target("llvm"))

    short, long = (calls_of(chain(steps)) for steps in (500, 1000))
    assert long < 2.2 * short
