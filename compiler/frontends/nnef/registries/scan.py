"""`tract_core_scan`: a loop over chunks of tensors with loop-carried states.

    (y, h) = tract_core_scan(body = "step", scan = [("x", x, 0, 1)], full = [("w", w)], state = [("h0", h, "h")],
                             output = [("h", "full", 0, 1), ("h", "last", 0, 1)]);

The body is a fragment of the document. A chunk of a negative size goes backwards, as do its outputs. Where states are
kept, a run goes on where the one before it ended, unless the scan is reset every turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.values import Arguments
from nnefc.ir.network import Loop
from nnefc.operators.base import Operand, dtype_of, shape_of
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.tensor.shape import Reshape, Slice, Squeeze, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known

__all__: list[str] = []

_CORE = registry("tract_core")


@dataclass(frozen=True)
class _Scanned:
    """A tensor that is taken apart in chunks along an axis.

    Attributes:
        name: of the body's parameter.
        chunks: the tensor with the chunks along a new first axis.
        backwards: whether the last chunk is the first iteration's.
    """

    name: str
    chunks: Operand
    backwards: bool


@dataclass(frozen=True)
class _Output:
    """A result of the body that the loop returns.

    Attributes:
        name: of the body's result.
        whole: whether those of all iterations, joined along an axis; else the last one.
        axis: along which.
        backwards: whether the first iteration's is the last chunk.
    """

    name: str
    whole: bool
    axis: int
    backwards: bool


@_CORE.operator(
    "fragment tract_core_scan(body: string, scan: (string, tensor<scalar>, integer, integer)[], "
    "full: (string, tensor<scalar>)[] = [], state: (string, tensor<scalar>, string)[] = [], "
    "output: (string, string, integer, integer)[] = [], skip: integer = 0, reset_every_turn: integer = 0, "
    "external_state: integer = 0) -> (outputs: tensor<scalar>[])",
    sizes=True,
)
def _scan(context: ExtensionContext, args: Arguments) -> Value:
    emitter = context.emitter
    scanned = [_scanned(context, *each) for each in args.scan]
    if not scanned:
        raise CompileError("'scan' is empty: a scan needs a tensor whose chunks it reads")
    counts = [shape_of(each.chunks)[0] for each in scanned]
    if any(count != counts[0] for count in counts):
        raise CompileError(f"the tensors of a scan have different numbers of chunks: {counts}")
    full = {name: emitter.tensor(value, "float32") for name, value in args.full}
    before = [emitter.tensor(value, "float32") for _, value, _ in args.state]
    kept: list[relax.Var] = []
    if context.keeps_states and not args.reset_every_turn:
        before, kept = map(list, zip(*map(emitter.kept, before), strict=True)) if before else ([], [])
    outputs = [_Output(name, kind == "full", axis, chunk < 0) for name, kind, axis, chunk in args.output]
    states = [(name, value, result) for (name, _, result), value in zip(args.state, before, strict=True)]
    made, last = _Body(context, args.body, full, states, outputs, args.skip).run(scanned, counts[0])
    for (*_, result), state in zip(states, kept, strict=bool(kept)):
        emitter.update(state, last[result])
    made = [_joined(context, v, o.axis) if o.whole else v for o, v in zip(outputs, made, strict=True)]
    return made[0] if len(made) == 1 else made


def _scanned(context: ExtensionContext, name: str, value: Value, axis: int, chunk: int) -> _Scanned:
    """Chunks of `chunk` along an axis, on a new first one."""
    emitter = context.emitter
    operand, size = emitter.tensor(value, "float32"), abs(chunk)
    shape = shape_of(operand)
    if size == 0 or not 0 <= axis < len(shape):
        raise CompileError(f"a scan of {list(shape)} by {chunk} along the axis {axis} has no chunks")
    if is_known(shape[axis]) and shape[axis] % size:
        raise CompileError(f"a dimension of {shape[axis]} is no number of chunks of {size}")
    parted = emitter.apply(Reshape((*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])), operand)
    order = (axis, *(i for i in range(len(shape) + 1) if i != axis))
    return _Scanned(name, emitter.apply(Transpose(order), parted), chunk < 0)


def _joined(context: ExtensionContext, value: Operand, axis: int) -> Operand:
    """Chunks along the first axis, put together along another one."""
    emitter, (count, *shape) = context.emitter, shape_of(value)
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
    moved = emitter.apply(Transpose(order), value)
    return emitter.apply(Reshape((*shape[:axis], count * shape[axis], *shape[axis + 1 :])), moved)


class _Body:
    """The loop around a fragment.

    Args:
        context: of the document.
        name: of the fragment.
        full: what each iteration is given, by the names of the fragment's parameters.
        states: by parameter what goes from one iteration to the next, and which result that is.
        outputs: what the loop returns.
        skip: how many iterations leave the states as they are, from the first run on.
    """

    def __init__(
        self,
        context: ExtensionContext,
        name: str,
        full: Mapping[str, Operand],
        states: Sequence[tuple[str, Operand, str]],
        outputs: Sequence[_Output],
        skip: int,
    ) -> None:
        self._context = context
        self._name = name
        self._full = full
        self._states = states
        self._outputs = outputs
        results = {result for *_, result in states}
        self._stacked = [each for each in outputs if each.whole or each.name not in results]
        self._skip = skip

    def run(self, scanned: Sequence[_Scanned], count: Dimension) -> tuple[list[Operand], dict[str, Operand]]:
        """The outputs, those of all iterations along a new first axis; and the last states by the results' names."""
        emitter = self._context.emitter
        if isinstance(count, int) and count == 1:
            elements = {each.name: emitter.reshaped(each.chunks, shape_of(each.chunks)[1:]) for each in scanned}
            made, last = self._iteration(elements, [initial for _, initial, _ in self._states], self._skipped(count))
            stacked = [emitter.apply(Unsqueeze((0,)), value) for value in made]
        else:
            stacked, last = self._looped(scanned, count)
        return [self._output(each, stacked, last, count) for each in self._outputs], last

    def _output(
        self, output: _Output, stacked: Sequence[Operand], last: Mapping[str, Operand], count: Dimension
    ) -> Operand:
        if output not in self._stacked:
            return last[output.name]
        value = stacked[self._stacked.index(output)]
        if output.whole:
            return value
        emitter = self._context.emitter
        return emitter.apply(Squeeze((0,)), emitter.apply(Slice({0: (count - 1, 1, 1)}), value))

    def _skipped(self, count: Dimension) -> Operand | None:
        """Returns how many iterations are still to be skipped, an int64 without axes; None if none ever is."""
        if not self._skip:
            return None
        before = self._context.emitter.counter("scanned", count) if self._context.keeps_states else np.array(0)
        return apply(self._context.emitter, "subtract", np.array(self._skip), before)

    def _looped(self, scanned: Sequence[_Scanned], count: Dimension) -> tuple[list[relax.Expr], dict[str, Operand]]:
        emitter = self._context.emitter
        types = [relax.TensorType(shape_of(initial), dtype_of(initial)) for _, initial, _ in self._states]
        inputs = [relax.TensorType((), "int64")]
        inputs += [relax.TensorType(shape_of(each.chunks)[1:], dtype_of(each.chunks)) for each in scanned]
        stacked: list[relax.TensorType] = []
        skipped = self._skipped(count)

        def make(given: list[relax.Expr], before: list[relax.Expr]) -> list[Operand]:
            elements = dict(zip((each.name for each in scanned), given[1:], strict=True))
            left = None if skipped is None else apply(emitter, "subtract", skipped, given[0])
            whole, after = self._iteration(elements, before, left)
            stacked.extend(relax.TensorType((count, *shape_of(part)), dtype_of(part)) for part in whole)
            return [*whole, *(after[result] for *_, result in self._states)]

        body, captured = emitter.body(inputs, types, make, leading=1)
        backwards = tuple(each.backwards for each in scanned)
        loop = Loop(
            body, count, False, False, backwards, tuple(each.whole and each.backwards for each in self._stacked)
        )
        operands = [*captured, *(initial for _, initial, _ in self._states), *(each.chunks for each in scanned)]
        results = emitter.control(loop, operands, [*types, *stacked])
        last = dict(zip((result for *_, result in self._states), results[: len(types)], strict=True))
        return results[len(types) :], last

    def _iteration(
        self, elements: Mapping[str, Operand], states: Sequence[Operand], skipped: Operand | None
    ) -> tuple[list[Operand], dict[str, Operand]]:
        """Emit an iteration: the outputs to stack, and the new states by name (the old ones if it is skipped)."""
        emitter = self._context.emitter
        names = [name for name, *_ in self._states]
        given: dict[str, Value] = {**self._full, **elements, **dict(zip(names, states, strict=True))}
        made = self._context.run_fragment(self._name, self._matched(given))
        results = {_identifier(name): emitter.tensor(value, "float32") for name, value in made.items()}
        wanted = [*(output.name for output in self._outputs), *(result for *_, result in self._states)]
        missing = next((name for name in wanted if _identifier(name) not in results), None)
        if missing is not None:
            raise CompileError(f"the fragment '{self._name}' has no result '{missing}'")
        after = {result: results[_identifier(result)] for *_, result in self._states}
        if skipped is not None:
            over = apply(emitter, "less_equal", skipped, np.array(0))
            after = {
                result: emitter.apply(Where(), over, after[result], before)
                for (*_, result), before in zip(self._states, states, strict=True)
            }
        for name, initial, result in self._states:
            own, made_own = (f"{dtype_of(value)}{list(shape_of(value))}" for value in (initial, after[result]))
            if dtype_of(initial) != dtype_of(after[result]) or shape_of(initial) != shape_of(after[result]):
                raise CompileError(f"the state '{name}' is {own}, but after an iteration '{result}' is {made_own}")
        return [results[_identifier(output.name)] for output in self._stacked], after

    def _matched(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Arguments by the parameters' names."""
        known = {_identifier(name): value for name, value in given.items()}
        return {
            name: known[_identifier(name)]
            for name in self._context.parameters_of(self._name)
            if _identifier(name) in known
        }


def _identifier(name: str) -> str:
    """Return a name as tract writes it: `_` for each character that identifiers cannot have."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).lstrip("_")
