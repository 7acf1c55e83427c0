"""Handles unspecified dimensions of model inputs for all front ends: they become dynamic dimensions.

x: float32[batch, 3, ?, ?]      batch, x_2 and x_3 are dynamic dimensions, of any size
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from nnefc.frontends.refusals import REFUSALS, reason_of
from nnefc.ir.network import DataDependentSize, DynamicDimension, Network
from nnefc.ir.outline import Allowed, DynamicTensor, likely_size, shape_option
from nnefc.support.diagnostics import CompileError, WriteError, ran_out_of_memory
from nnefc.support.internal_errors import internal_error, is_mistake
from nnefc.symbolic.dims import LARGEST, Dimension, DynamicSize, Range, Size, bounds, expression, ranges, size_hint
from nnefc.symbolic.formulas import formula_of, size_of, value_of
from nnefc.symbolic.named_formulas import Formula, spelled
from nnefc.symbolic.ranges import may_be_empty
from nnefc.symbolic.refinement import Refinement

__all__ = [
    "DynamicDimensions",
    "DynamicInputs",
    "DynamicSizesError",
    "axis_name",
    "check_ranges",
    "dynamic_shape_context",
    "likely_sizes",
    "naming_sum_dims",
]

_MAX_TOGETHER = LARGEST**3


def axis_name(tensor: str, axis: int) -> str:
    """The name of a dynamic dimension that the model has none for."""
    return f"{tensor}_{axis}"


def likely_sizes(tensors: Iterable[DynamicTensor]) -> dict[str, int]:
    """Returns size hints for the unspecified dimensions of inputs, by name."""
    found: dict[str, int] = {}
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape or ()):
            if not isinstance(size, int):
                found.setdefault(size or axis_name(tensor.name, axis), likely_size(size or "", axis, tensor))
    return found


class DynamicDimensions:
    """The dynamic dimensions of a network that is being built.

    Args:
        refinement: what is known of them.
        likely: sizes for estimates, by name.

    Attributes:
        made: those that there are, by name.
    """

    def __init__(self, refinement: Refinement, likely: Mapping[str, int] | None = None) -> None:
        self.refinement = refinement
        self.made: dict[str, DynamicDimension] = {}
        self._likely = likely or {}

    def size(self, name: str, size: DynamicSize) -> Dimension:
        """The size of a dimension that may have these sizes: a number if there is but one, or what it follows from."""
        name, size = self.refinement.of(name, size)
        if name in self.refinement.joined:
            return self._joined(name)
        if size.values.minimum == size.values.maximum and name not in self.refinement.limited:
            return size.values.minimum * size.multiple
        if name not in self.made:
            made = DynamicDimension.of(name, replace(size, likely=self._likely.get(name, size.likely)))
            formula = self.refinement.computed.get(name)
            if formula is not None:
                value = size_of(formula, self._named)
                if isinstance(value, int):
                    return value
                made = replace(made, formula=self._formula(value) or formula, value=value)
            self.made[name] = made
        return self.made[name].size

    def _joined(self, name: str) -> Dimension:
        """Returns the size that two sizes broadcast to at run time: a number, one of them, or a new dimension."""
        if name in self.made:
            return self.made[name].size
        one, other = self._operands(name)
        if one == 1 or one == other:
            return other
        if other == 1:
            return one
        (low, high), (minimum, maximum) = bounds(one), bounds(other)
        found = max(low, minimum) if min(low, minimum) > 0 else 0
        _, size = self.refinement.of(name, DynamicSize(found, max(high, maximum)))
        values = replace(size.values, size_hint=max(size.values.minimum, size_hint(one), size_hint(other)))
        made = replace(DynamicDimension.of(name, size), values=values, formula=self._broadcast(name))
        self.made[name] = replace(made, join=(one, other, made.size))
        return self.made[name].size

    def _operands(self, name: str) -> tuple[Dimension, Dimension]:
        """The sizes that broadcast to one."""
        formula = self.refinement.computed[name]
        assert isinstance(formula, tuple)
        with ranges({dimension.var: dimension.values for dimension in self.made.values()}):
            one, other = (size_of(part, self._named) for part in formula[1:])
        return one, other

    def _broadcast(self, name: str) -> Formula:
        """The formula of the size that two sizes broadcast to, in which dimensions of a single size are numbers."""
        one, other = map(self._formula, self._operands(name))
        formula = self.refinement.computed[name]
        assert isinstance(formula, tuple)
        return formula if one is None or other is None else (formula[0], one, other)

    def _formula(self, size: Dimension) -> Formula | None:
        """A size as a formula of the names of dimensions; None if it has other variables."""
        return formula_of(size, {each.var: value_of(each.name, each.multiple) for each in self.made.values()})

    def _check_joined(self, name: str) -> None:
        """Make a dimension that is 0 where the size that two others broadcast to is one that it must be."""
        (one, other), size = self._operands(name), self._named(name)
        wanted = self._formula(size)
        if one == other or wanted is None:
            return
        formula = "-", self._broadcast(name), wanted
        made = DynamicDimension.of(spelled(formula, str), DynamicSize(0, 0))
        self.made[name] = replace(made, formula=formula, value=0, join=(one, other, size))  # by the name of the size

    def all(self) -> tuple[DynamicDimension, ...]:
        """Return the dimensions of inputs, those they broadcast to, and sizes whose range does not follow."""
        for name in self.refinement.joined:
            if self.refinement.of(name, DynamicSize())[0] == name:
                self._joined(name)
            elif name not in self.made:
                self._check_joined(name)
        known = {dimension.var: dimension.values for dimension in self.made.values()}
        for name in self.refinement.limited:
            wanted = self.refinement.sizes[name].values
            with ranges(known):
                minimum, maximum = bounds(size_of(self.refinement.computed[name], self._named))
            if minimum < wanted.minimum or maximum > wanted.maximum:
                self._named(name)
            else:
                self.refinement.notes.pop(name, None)
        return tuple(self.made.values())

    def _named(self, name: str) -> Dimension:
        return self.size(name, DynamicSize())


class DynamicInputs:
    """Creates dynamic dimensions for the unspecified sizes of inputs whose dimensions have no names.

    Args:
        refinement: what is known of them.
    """

    def __init__(self, refinement: Refinement) -> None:
        self._dimensions = DynamicDimensions(refinement)

    @property
    def dimensions(self) -> tuple[DynamicDimension, ...]:
        """Return the dynamic dimensions that have been created."""
        return self._dimensions.all()

    def shape(self, name: str, wanted: Sequence[int | DynamicSize | None]) -> tuple[Dimension, ...]:
        """Returns the shape of an input, with known sizes, sizes in a given range, and dynamic sizes."""
        declared = DynamicTensor(name, "", tuple(size if isinstance(size, int) else None for size in wanted))
        return tuple(self._size(declared, axis, size) for axis, size in enumerate(wanted))

    def _size(self, declared: DynamicTensor, axis: int, size: int | DynamicSize | None) -> Dimension:
        if isinstance(size, int):
            return size
        minimum = DynamicSize(minimum=0 if may_be_empty("", axis) else 1)
        opened = replace(size or minimum, likely=likely_size("", axis, declared))
        return self._dimensions.size(axis_name(declared.name, axis), opened)


def naming_sum_dims(network: Network) -> Network:
    """The network, with dynamic dimensions for the sizes of inputs that follow from other ones, such as `past + n`."""
    dimensions = list(network.dynamic_dimensions)
    names = {d.var: value_of(d.name, d.multiple) for d in dimensions}
    with ranges(network.ranges):
        for size in (size for shape in network.input_shapes.values() for size in shape if isinstance(size, Size)):
            formula = formula_of(size, names)
            if formula is None or any(dimension.size == size for dimension in dimensions):
                continue
            name, (minimum, maximum) = spelled(formula, str), bounds(size)
            values = Range(max(0, minimum), maximum, size_hint(size))
            dimensions.append(
                replace(DynamicDimension.of(name, DynamicSize()), values=values, formula=formula, value=size)
            )
    return replace(network, dynamic_dimensions=tuple(dimensions))


def check_ranges(dimensions: Sequence[DynamicDimension]) -> None:
    """Refuse wide ranges with which products of sizes are beyond int64: what is proved of those would be wrong.

    Raises:
        CompileError: the product of the largest sizes is, and some of these are larger than the default range.
    """
    wide = [d for d in dimensions if d.values.maximum * d.multiple > LARGEST]
    together = math.prod(d.values.maximum * d.multiple for d in dimensions)
    if wide and together > _MAX_TOGETHER:
        names = " and ".join(f"'{d.name}'" for d in wide)
        raise CompileError(
            f"the dynamic sizes, of which {names} may be more than {LARGEST:,}, may have a product of {together:.0e}, "
            "too large to reckon with in 64 bits",
            hint="give narrower ranges: " + " ".join(f"--shape {d.name}={d.minimum}..{LARGEST}" for d in wide),
        )


class DynamicSizesError(CompileError):
    """A network cannot be compiled with dynamic sizes.

    Attributes:
        shapes: of all inputs, with likely numbers in place of what is open.
        cause: the same error without the advice to give sizes.
    """

    def __init__(self, error: Exception, shapes: Mapping[str, tuple[int, ...]], option: str) -> None:
        self.cause = known = _as_compile_error(error)
        way = f"give the sizes that are open, with numbers of your own: {option}"
        hint = f"{known.hint}; or {way}" if known.hint else way
        super().__init__(known.message, location=known.location, hint=hint, notes=known.notes)
        self.shapes = shapes


def _as_compile_error(error: Exception) -> CompileError:
    if isinstance(error, CompileError):
        return error
    return internal_error(error) if is_mistake(error) else CompileError(f"sizes cannot stay open: {reason_of(error)}")


@contextmanager
def dynamic_shape_context(
    dimensions: Sequence[DynamicDimension],
    inputs: Mapping[str, tuple[Dimension, ...]],
    counts: Sequence[DataDependentSize] = (),
) -> Iterator[None]:
    """Sets the ranges of these dimensions and data-dependent sizes inside the context; `inputs` are the shapes of all
    inputs, by name.

    Raises:
        DynamicSizesError: in place of all errors but those of memory and of files that cannot be written, if any
            dimension is open.
    """
    sums = {d.name: (d.value.expr, d.minimum, d.maximum) for d in dimensions if isinstance(d.value, Size)}
    joins = tuple(tuple(map(expression, d.join)) for d in dimensions if d.join is not None)
    with ranges({d.var: d.values for d in dimensions} | {c.var: c.values for c in counts}, sums, joins):
        try:
            yield
        except (AssertionError, AttributeError, CompileError, LookupError, *REFUSALS) as error:
            if not dimensions or ran_out_of_memory(error) or isinstance(error, WriteError):
                raise
            shapes = {name: tuple(map(size_hint, shape)) for name, shape in inputs.items()}
            tensors = [_dynamic_tensor(name, shape, dimensions) for name, shape in inputs.items()]
            option = shape_option(tensors, _allowed(inputs, dimensions))
            raise DynamicSizesError(error, shapes, option) from error


def _allowed(inputs: Mapping[str, tuple[Dimension, ...]], dimensions: Sequence[DynamicDimension]) -> Allowed:
    """Returns the ranges of the dynamic sizes in the shapes of inputs."""
    return {
        (name, axis): DynamicSize(
            each.minimum, each.maximum if each.maximum < LARGEST else None, each.multiple, each.size_hint
        )
        for name, shape in inputs.items()
        for axis, size in enumerate(shape)
        for each in dimensions
        if each.size == size and each.values.size_hint
    }


def _dynamic_tensor(name: str, shape: tuple[Dimension, ...], dimensions: Sequence[DynamicDimension]) -> DynamicTensor:
    """An input whose dynamic dimensions have the names that the model knows."""

    def spelled(axis: int, size: Dimension) -> int | str | None:
        if not isinstance(size, Size):
            return size
        found = next((dimension.name for dimension in dimensions if dimension.size == size), None)
        return None if found == axis_name(name, axis) else found

    return DynamicTensor(name, "", tuple(spelled(axis, size) for axis, size in enumerate(shape)))
