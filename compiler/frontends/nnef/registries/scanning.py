"""`tract_core_scan`: a loop over chunks of tensors, with states that go from one to the next.

    (y, h) = tract_core_scan(body = "step", scan = [("x", x, 0, 1)], full = [("w", w)], state = [("h0", h, "h")],
                             output = [("h", "full", 0, 1), ("h", "last", 0, 1)]);

The body is a fragment of the document. A chunk of a negative size goes backwards, as do its outputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax

from nnefc.diagnostics import CompileError
from nnefc.frontends.nnef.dynamic.registry import Context, registry
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.values import Arguments
from nnefc.network import Loop
from nnefc.operators.base import Operand, dtype_of, shape_of
from nnefc.operators.shape import Reshape, Transpose, Unsqueeze
from nnefc.sizes import Dimension, is_known

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
def _scan(context: Context, args: Arguments) -> Value:
    at = context.at
    if args.skip:
        raise CompileError(f"a scan that skips its first {args.skip} iterations is not supported")
    scanned = [_scanned(context, *each) for each in args.scan]
    if not scanned:
        raise CompileError("a scan needs a tensor to go over")
    counts = [shape_of(each.chunks)[0] for each in scanned]
    if any(count != counts[0] for count in counts):
        raise CompileError(f"the tensors of a scan have different numbers of chunks: {counts}")
    full = {name: at.tensor(value, "float32") for name, value in args.full}
    states = [(name, at.tensor(initial, "float32"), result) for name, initial, result in args.state]
    outputs = [_Output(name, kind == "full", axis, chunk < 0) for name, kind, axis, chunk in args.output]
    body = _Body(context, args.body, full, states, outputs)
    stacked, last = body.run(scanned, counts[0])
    made: list[Operand] = []
    for output in outputs:
        value = stacked[output.name] if output.whole else last[output.name]
        made.append(_joined(context, value, output.axis) if output.whole else value)
    return made[0] if len(made) == 1 else made


def _scanned(context: Context, name: str, value: Value, axis: int, chunk: int) -> _Scanned:
    """Chunks of `chunk` along an axis, on a new first one."""
    at = context.at
    operand, size = at.tensor(value, "float32"), abs(chunk)
    shape = shape_of(operand)
    if size == 0 or not 0 <= axis < len(shape):
        raise CompileError(f"a scan of {list(shape)} by {chunk} along the axis {axis} has no chunks")
    if is_known(shape[axis]) and shape[axis] % size:
        raise CompileError(f"a dimension of {shape[axis]} is no number of chunks of {size}")
    parted = at.apply(Reshape((*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])), operand)
    order = (axis, *(i for i in range(len(shape) + 1) if i != axis))
    return _Scanned(name, at.apply(Transpose(order), parted), chunk < 0)


def _joined(context: Context, value: Operand, axis: int) -> Operand:
    """Chunks along the first axis, put together along another one."""
    at, (count, *shape) = context.at, shape_of(value)
    order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
    moved = at.apply(Transpose(order), value)
    return at.apply(Reshape((*shape[:axis], count * shape[axis], *shape[axis + 1 :])), moved)


class _Body:
    """The loop around a fragment."""

    def __init__(
        self,
        context: Context,
        name: str,
        full: Mapping[str, Operand],
        states: Sequence[tuple[str, Operand, str]],
        outputs: Sequence[_Output],
    ) -> None:
        self._context = context
        self._name = name
        self._full = full
        self._states = states
        self._whole = [output for output in outputs if output.whole]
        self._last = [output for output in outputs if not output.whole]

    def run(self, scanned: Sequence[_Scanned], count: Dimension) -> tuple[dict[str, Operand], dict[str, Operand]]:
        """Results of all iterations along a new first axis, and of the last one, by the names of the body's results."""
        at = self._context.at
        extra = [output.name for output in self._last if output.name not in {result for *_, result in self._states}]
        if extra:
            raise CompileError(f"the last '{extra[0]}' is asked for, which is no state of the scan")
        if isinstance(count, int) and count == 1:
            items = {each.name: at.reshaped(each.chunks, shape_of(each.chunks)[1:]) for each in scanned}
            made = self._iteration(items, [initial for _, initial, _ in self._states])
            whole = {output.name: at.apply(Unsqueeze((0,)), made[output.name]) for output in self._whole}
            return whole, {output.name: made[output.name] for output in self._last}
        types = [relax.TensorType(shape_of(initial), dtype_of(initial)) for _, initial, _ in self._states]
        inputs = [relax.TensorType((), "int64")]
        inputs += [relax.TensorType(shape_of(each.chunks)[1:], dtype_of(each.chunks)) for each in scanned]
        stacked: list[relax.TensorType] = []

        def make(given: list[relax.Expr], before: list[relax.Expr]) -> list[Operand]:
            items = dict(zip((each.name for each in scanned), given[1:], strict=True))
            made = self._iteration(items, before)
            whole = [made[output.name] for output in self._whole]
            stacked.extend(relax.TensorType((count, *shape_of(part)), dtype_of(part)) for part in whole)
            return [*whole, *(made[result] for *_, result in self._states)]

        body, captured = at.body(inputs, types, make, leading=1)
        loop = Loop(
            body,
            count,
            False,
            False,
            tuple(each.backwards for each in scanned),
            tuple(output.backwards for output in self._whole),
        )
        operands = [*captured, *(initial for _, initial, _ in self._states), *(each.chunks for each in scanned)]
        results = at.control(loop, operands, [*types, *stacked])
        states = dict(zip((result for *_, result in self._states), results[: len(types)], strict=True))
        whole = dict(zip((output.name for output in self._whole), results[len(types) :], strict=True))
        return whole, states

    def _iteration(self, items: Mapping[str, Operand], states: Sequence[Operand]) -> dict[str, Operand]:
        """The body's results by name."""
        names = [name for name, *_ in self._states]
        given: dict[str, Value] = {**self._full, **items, **dict(zip(names, states, strict=True))}
        made = self._context.run_fragment(self._name, self._matched(given))
        results = {_plain(name): self._context.at.tensor(value, "float32") for name, value in made.items()}
        wanted = [*(output.name for output in (*self._whole, *self._last)), *(result for *_, result in self._states)]
        missing = next((name for name in wanted if _plain(name) not in results), None)
        if missing is not None:
            raise CompileError(f"the fragment '{self._name}' has no result '{missing}'")
        return {name: results[_plain(name)] for name in wanted}

    def _matched(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Arguments by the parameters' names."""
        known = {_plain(name): value for name, value in given.items()}
        return {name: known[_plain(name)] for name in self._context.parameters_of(self._name) if _plain(name) in known}


def _plain(name: str) -> str:
    """What names have in common that differ in signs which identifiers cannot have: tract writes `_` for these."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).lstrip("_")
