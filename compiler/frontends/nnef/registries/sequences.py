"""`nnefc`: attention to all positions that a session has read, for one sequence or a batch of them.

    (before, lengths) = nnefc_positions(tokens, context = 2048);                       [1], [1]
    (before, lengths) = nnefc_positions(tokens, sequences, count = 8, context = 2048);     [B], [B]
    y = nnefc_cached_attention(q, k, v, before, window = 512);                              [B, H, S, E]
    y = nnefc_cached_attention(q, k, v, before, window = 512, kept = 767);                  the same, of a ring
    y = nnefc_attention(q, k, v, lengths);                                                  [B, H, S, E]

The state `P` counts the positions of each sequence; others hold their keys and values. A run has as many of the
sequences as it likes, by their numbers: `tokens` are `[B, S]`, and `sequences`, `[B]`, says whose they are. Tokens
behind the end of a shorter one are -1. Without `sequences`, B is 1, and all tokens count. `nnefc_attention` is that of
whole texts, none of which is kept.

Where caches are rings, states whose names begin with `rewind_limit` have the smallest number, but 0, that `P` can be
set to.
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.nnef.dynamic.emitter import Sequences
from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.base import Operand, dtype_of, numpy_dtype, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.reduction import Maximum, Sum
from nnefc.operators.nn.attention import Attention
from nnefc.operators.nn.cached_attention import AdvancePositions, WriteToCache
from nnefc.operators.nn.ring_cache import ReadRing, RewindLimits, WriteToRing
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.scatter import ScatterElements
from nnefc.operators.tensor.shape import Slice
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known, minimum
from nnefc.symbolic.unification import unify_dims, unify_shapes

__all__: list[str] = []

_NNEFC = registry("nnefc")


@_NNEFC.operator(
    "fragment nnefc_positions(tokens: tensor<integer>, sequences: tensor<integer> = 0, count: integer = 1, "
    "context: integer) -> (before: tensor<integer>, lengths: tensor<integer>)",
    promotes=False,
    limits="once in a graph",
)
def _positions(context: ExtensionContext, args: Arguments) -> tuple[Operand, Operand]:
    """How many positions came before in each sequence, and how many come now; the state `P` counts them."""
    emitter, shape, one = context.emitter, shape_of(args.tokens), rank_of(args.sequences) == 0  # its default
    fits = len(shape) == 2 and (unify_dims(shape[0], 1) if one else unify_shapes(shape_of(args.sequences), shape[:1]))
    if not fits or args.count < 1 or args.context < 1:
        raise CompileError(
            f"tokens {list(shape)} are not [B, S], sequences not [B], or one, or there is no room: "
            f"{args.count} sequences of {args.context} tokens"
        )
    if emitter.sequences:
        raise CompileError("positions are advanced twice: a graph has one 'nnefc_positions'")
    largest = args.context - 1
    if one:
        state = emitter.state("P", np.array(0), 0)
        past = emitter.past("P", state, largest)
        before, lengths = emitter.reshaped(state, (1,)), emitter.reshaped(emitter.tensor(shape[1], "int64"), (1,))
        numbers = None
    else:
        state = emitter.state("P", np.zeros(args.count, np.int64), 0)
        numbers = emitter.apply(
            Gather(0), np.arange(args.count), args.sequences
        )  # which are looked at here, once for all
        before = emitter.apply(Gather(0, "clip"), state, numbers)
        past = emitter.past("P", emitter.apply(Maximum((0,)), before), largest)
        given = apply(emitter, "greater_equal", args.tokens, emitter.number(0, args.tokens))
        lengths = emitter.apply(Sum((1,)), emitter.apply(Cast("int64"), given))
    counts = emitter.apply(AdvancePositions(args.context), before, lengths)
    after = (
        emitter.reshaped(counts, ()) if numbers is None else emitter.apply(ScatterElements(0), state, numbers, counts)
    )
    emitter.update(state, after)
    emitter.sequences[before] = Sequences(numbers, args.count, args.context, past, lengths)
    return before, lengths


@_NNEFC.operator(
    "fragment nnefc_cached_attention(q: tensor<scalar>, k: tensor<scalar>, v: tensor<scalar>, before: tensor<integer>, "
    "scale: scalar = 0.0, softcap: scalar = 0.0, window: integer = 0, sink: tensor<scalar> = 0.0, "
    "storage: string = 'f32', kept: integer = 0) -> (y: tensor<scalar>)",
    promotes=False,
    limits="`before` is of `nnefc_positions`",
)
def _cached_attention(context: ExtensionContext, args: Arguments) -> Operand:
    """Emit attention in which a query sees the keys up to its position, or the last `window` of these.

    Queries are `[B, H, S, E]`, new keys and values `[B, G, S, E]`; `H / G` heads share one of keys and values. Without
    a scale it is one over the root of E. With a soft cap, scores become `softcap · tanh(score / softcap)`. A sink,
    `[1, H]`, is a score of each head that has a share in the softmax, but no value. Keys and values are kept as float32
    (`f32`), rounded to float16 (`f16`), or to int8 with a scale for each head and position (`q8`). A tensor that is
    kept for several of these operators, with one storage, is kept once.

    With a window, `kept` says how many positions are kept, `window - 1` or more; 0 for all of the context. A sequence
    can then be set back by the positions that are kept besides those of the window, or begin again.
    """
    emitter = context.emitter
    of = None if isinstance(args.before, np.ndarray) else emitter.sequences.get(args.before)
    if of is None:
        raise CompileError("'before' is not a result of 'nnefc_positions'")
    if args.storage not in _STORAGES:
        raise CompileError(f"'storage' is '{args.storage}', not one of {', '.join(_STORAGES)}")
    rows = _ring_rows(args.window, args.kept, of)
    if rows:
        _limit_rewinds(context, args.window, rows, args.before, of)
    keys, values = (_held(context, args.storage, x, args.before, of, rows) for x in (args.k, args.v))
    left = args.window - 1 if args.window > 0 else None
    attention = Attention(args.scale or None, causal=True, left=left, softcap=args.softcap)
    sink = emitter.reshaped(args.sink, (shape_of(args.q)[1],)) if rank_of(args.sink) else None
    made: Operand = attention.lower(emitter, args.q, keys, values, first=args.before, sink=sink)
    return made


@_NNEFC.operator(
    "fragment nnefc_attention(q: tensor<scalar>, k: tensor<scalar>, v: tensor<scalar>, lengths: tensor<integer>, "
    "scale: scalar = 0.0, softcap: scalar = 0.0, window: integer = 0, is_causal: logical = false) "
    "-> (y: tensor<scalar>)",
    promotes=False,
)
def _attention(context: ExtensionContext, args: Arguments) -> Operand:
    """Emit attention in which a query sees the keys of its own text, as long as its batch element says.

    Queries are `[B, H, S, E]`, keys and values `[B, G, S, E]`; `H / G` heads share one of keys and values. With a
    window a query sees so many positions before and behind its own; a causal one sees none behind it, and the last
    `window` ones with its own.
    """
    emitter, window = context.emitter, args.window if args.window > 0 else None
    before = window if window is None or not args.is_causal else window - 1
    attention = Attention(
        args.scale or None,
        causal=args.is_causal,
        left=before,
        right=None if args.is_causal else window,
        softcap=args.softcap,
    )
    first = None
    if args.is_causal or window is not None:  # else positions do not matter
        first = apply(emitter, "subtract", args.lengths, args.lengths)
    made: Operand = attention.lower(emitter, args.q, args.k, args.v, lengths=args.lengths, first=first)
    return made


def _ring_rows(window: int, kept: int, of: Sequences) -> int:
    """Returns how many positions the rings of an attention hold; 0 where caches hold the whole context.

    Raises:
        CompileError: there is no window, or it does not fit.
    """
    if kept and not 0 < window <= kept + 1:
        raise CompileError(f"caches of {kept} positions do not hold those of a window of {window} before a query")
    return kept if kept < of.context else 0


def _limit_rewinds(context: ExtensionContext, window: int, rows: int, before: Operand, of: Sequences) -> None:
    """Keeps how far each sequence can be set back, and lets runs fail that go on from fewer positions."""
    if (window, rows) in of.rings:
        return
    of.rings.add((window, rows))
    emitter = context.emitter
    limits = emitter.state("rewind_limit", np.zeros(of.count, np.int64), 0)
    given = [limits, before, of.lengths, *([] if of.numbers is None else [of.numbers])]
    emitter.update(limits, emitter.apply(RewindLimits(window, rows), *given))


def _held(context: ExtensionContext, storage: str, new: Operand, before: Operand, of: Sequences, rows: int) -> Operand:
    """The new positions and those before, of a state that other operators may read, too."""
    if isinstance(new, np.ndarray):
        return _STORAGES[storage](context, new, before, of, rows)
    if (new, storage, rows) not in of.kept:
        of.kept[new, storage, rows] = _STORAGES[storage](context, new, before, of, rows)
    return of.kept[new, storage, rows]


def _kept(
    context: ExtensionContext, new: Operand, before: Operand, of: Sequences, rows: int, name: str = "cache"
) -> Operand:
    """The new positions and those before, `[B, G, P + S, E]`, of a state that has them all, or a ring of `rows`."""
    emitter, shape = context.emitter, shape_of(new)
    if len(shape) != 4 or not is_known(shape[1], shape[3]):
        raise CompileError(f"keys and values are [batch, heads, positions, width], not {list(shape)}")
    numbers = [] if of.numbers is None else [of.numbers]
    held = of.count, shape[1], rows or of.context, shape[3]
    total = minimum(of.past + shape[2], of.context)  # a shorter sequence may end before the longest one's new tokens
    cache = emitter.state(f"{emitter.hint}_{name}", np.zeros(held, numpy_dtype(dtype_of(new))), 2)
    if rows:
        found: Operand = emitter.apply(ReadRing(total), new, cache, before, *numbers)
        emitter.update(cache, emitter.apply(WriteToRing(), new, cache, before, of.lengths, *numbers))
        return found
    kept = emitter.apply(WriteToCache(), new, cache, before, *numbers)
    emitter.update(cache, kept)
    seen: Operand = emitter.apply(Slice({2: (0, total, 1)}), kept)
    return seen if of.numbers is None else emitter.apply(Gather(0, "clip"), seen, of.numbers)


def _kept_as_fp16(context: ExtensionContext, new: Operand, before: Operand, of: Sequences, rows: int) -> Operand:
    """The same, rounded to float16."""
    emitter = context.emitter
    kept: Operand = emitter.apply(
        Cast("float32"), _kept(context, emitter.apply(Cast("float16"), new), before, of, rows)
    )
    return kept


def _kept_as_int8(context: ExtensionContext, new: Operand, before: Operand, of: Sequences, rows: int) -> Operand:
    """The same, rounded to integers with a scale for each head and position, which have a state of their own."""
    emitter = context.emitter
    largest = emitter.apply(Maximum((3,), keepdims=True), apply(emitter, "abs", new))
    scales = apply(
        emitter, "divide", apply(emitter, "maximum", largest, emitter.number(_TINY, new)), emitter.number(127, new)
    )
    codes = emitter.apply(Cast("int8"), apply(emitter, "round", apply(emitter, "divide", new, scales)))
    kept = emitter.apply(Cast("float32"), _kept(context, codes, before, of, rows))
    return apply(emitter, "multiply", kept, _kept(context, scales, before, of, rows, "scales"))


_TINY = 1e-30
_STORAGES = {"f32": _kept, "f16": _kept_as_fp16, "q8": _kept_as_int8}
