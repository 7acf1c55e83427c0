"""Represents a network after fusion as a list of steps, from which the memory plan and the entry are built.

A step is a call of a kernel; or one of two programs, by a condition; or a program that runs again and again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from xxhash import xxh3_64_intdigest

from nnefc.ir.attributes import DYNAMIC_DIMENSIONS
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Body, Control, DataDependentSize, If, Loop, Network, control_index, result_types
from nnefc.ir.rebuild import with_fields
from nnefc.passes.graph.debug_locations import debug_locations
from nnefc.passes.graph.rewriter import array_of, is_constant
from nnefc.passes.plan.size_arguments import SizeArguments, pass_sizes_as_arguments
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.support.diagnostics import CompileError
from nnefc.support.element_types import element_bytes
from nnefc.support.mapped_files import LARGE, release_pages
from nnefc.symbolic.dims import Dimension, bounds, dimensions, element_count, expression, size_hint, variables

__all__ = [
    "Buffer",
    "IfStep",
    "LoopStep",
    "MemoryKind",
    "Pool",
    "Program",
    "Step",
    "all_data_dependent_sizes",
    "called_with_elements",
    "element_ranges",
    "interface_of",
    "kernel_stages",
    "program_of",
    "size_variables",
]


class MemoryKind(Enum):
    """The kind of memory in which a buffer is."""

    INPUT = "input"
    STATE = "state"
    CONSTANT = "constant"
    WORKSPACE = "workspace"


@dataclass(frozen=True, eq=False)
class Buffer:
    """A dense row-major tensor between two kernels, or at the boundary of the network.

    `index` counts the inputs, the states or the constants; for the workspace it is a running number.
    """

    kind: MemoryKind
    index: int
    shape: tuple[Dimension, ...]
    dtype: str

    @property
    def bytes(self) -> Dimension:
        """The size in bytes; booleans and narrow integers take a byte each."""
        return element_count(self.shape) * element_bytes(self.dtype)


@dataclass(frozen=True)
class Step:
    """A call of a kernel, whose parameters are `reads`, `writes` and `sizes`, in this order.

    Attributes:
        sizes: the dynamic dimensions that the kernel uses.
        tensors: the model's tensors that the step computes, or helps to compute.
    """

    kernel: tvm.ir.GlobalVar
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    sizes: SizeArguments = ()
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class IfStep:
    """Runs `then` if the first of `reads` holds, else `other`; further `reads` are inputs of the first, then of the
    second. `writes` are the outputs of both.
    """

    then: Program
    other: Program
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    @property
    def bodies(self) -> tuple[Program, ...]:
        """Returns the programs that it may run."""
        return self.then, self.other


@dataclass(frozen=True, eq=False)
class LoopStep:
    """Runs `body` as `loop` specifies; its operands and results are `reads` and `writes`."""

    loop: Loop
    body: Program
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    @property
    def bodies(self) -> tuple[Program, ...]:
        """Returns the programs that it may run."""
        return (self.body,)

    @property
    def first_state(self) -> int:
        """The index among `reads` of the first state's value before the loop."""
        return len(self.reads) - len(self.loop.reversed_inputs) - len(self.body.states)


@dataclass(frozen=True)
class Program:
    """All steps in order, and which buffers the network's results are.

    Bodies of choices and loops are programs too; the constants and kernels of all are those of the outermost. The
    counts are data-dependent sizes, by the buffers that have them, several where equal kernels became one;
    the views are buffers that lie in others, so many bytes from where these begin.
    """

    steps: tuple[Step | IfStep | LoopStep, ...]
    inputs: tuple[Buffer, ...]
    states: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    new_states: tuple[Buffer, ...]
    constants: tuple[np.ndarray, ...]
    kernels: dict[tvm.ir.GlobalVar, tirx.PrimFunc]
    counts: Mapping[Buffer, tuple[DataDependentSize, ...]] = field(default_factory=dict)
    views: Mapping[Buffer, tuple[Buffer, int]] = field(default_factory=dict)

    @property
    def limits(self) -> dict[tirx.Var, Dimension]:
        """Returns the upper bounds of data-dependent sizes that have one; in bodies too."""
        return {count.var: count.limit for _, count in all_data_dependent_sizes(self) if count.limit is not None}

    @property
    def parts(self) -> dict[tirx.Var, int]:
        """The part of the workspace that waits for each unbounded size, from 1 on in the order of the steps."""
        return {
            count.var: part
            for part, count in enumerate((c for _, c in all_data_dependent_sizes(self) if c.limit is None), 1)
        }

    @property
    def borders(self) -> tuple[Buffer, ...]:
        """Returns the buffers that are given before the first step."""
        return (*self.inputs, *self.states)

    @property
    def is_straight(self) -> bool:
        """Whether the same kernels run on the same sizes for all inputs: no branches, no data-dependent sizes, and
        loops with known trip counts.
        """
        if self.counts:
            return False
        for step in self.steps:
            match step:
                case IfStep():
                    return False
                case LoopStep(loop, body) if loop.has_trip_count or loop.conditional or not body.is_straight:
                    return False
        return True


def kernel_stages(program: Program) -> Iterator[Step]:
    """Yields the calls of kernels, in bodies too."""
    for step in program.steps:
        if isinstance(step, Step):
            yield step
        else:
            for body in step.bodies:
                yield from kernel_stages(body)


def element_ranges(program: Program) -> dict[tvm.ir.GlobalVar, dict[int, tuple[int, int]]]:
    """Returns the smallest and the largest element of integer operands that are constants in all calls, by kernel and
    position.
    """
    found: dict[tvm.ir.GlobalVar, dict[int, tuple[int, int]]] = {}
    for step in kernel_stages(program):
        own = {}
        for position, buffer in enumerate(step.reads):
            if buffer.kind is MemoryKind.CONSTANT and program.constants[buffer.index].dtype.kind in "iu":
                elements = program.constants[buffer.index]
                if elements.size:
                    own[position] = (int(elements.min()), int(elements.max()))
        known = found.setdefault(step.kernel, own)
        found[step.kernel] = {
            position: (min(known[position][0], own[position][0]), max(known[position][1], own[position][1]))
            for position in known
            if position in own
        }
    return found


def all_data_dependent_sizes(program: Program) -> Iterator[tuple[Buffer, DataDependentSize]]:
    """Returns the data-dependent sizes, with the buffers that hold them, in the order in which they become known."""

    def of(buffers: Iterable[Buffer]) -> Iterator[tuple[Buffer, DataDependentSize]]:
        return ((buffer, count) for buffer in buffers for count in program.counts.get(buffer, ()))

    if not program.steps:
        yield from of(program.counts)
        return
    yield from of(program.borders)
    for step in program.steps:
        for body in () if isinstance(step, Step) else step.bodies:
            yield from all_data_dependent_sizes(body)
        yield from of(step.writes)


def called_with_elements(program: Program, alignment: int) -> Iterator[tvm.ir.GlobalVar]:
    """Returns the kernels in bodies of loops that get elements which do not begin at multiples of `alignment` bytes."""
    for step in program.steps:
        if isinstance(step, Step):
            continue
        for body in step.bodies:
            yield from called_with_elements(body, alignment)
        if isinstance(step, LoopStep) and any(buffer.bytes % alignment for buffer in _elements(step)):
            yield from (inner.kernel for inner in kernel_stages(step.body))


def _elements(step: LoopStep) -> tuple[Buffer, ...]:
    """Returns the operands and results of a loop's body that are elements of scanned or stacked tensors."""
    scanned = len(step.loop.reversed_inputs)
    return (*step.body.inputs[len(step.body.inputs) - scanned :], *step.body.outputs)


def program_of(network: Network, earlier: Pool | None = None) -> Program:
    """Lists the steps of a module whose `main` only calls kernels, branches and loops.

    Args:
        earlier: constants and names of kernels of other programs in the same library.

    Raises:
        CompileError: an operation is left that has no kernel.
    """
    pool = Pool() if earlier is None else earlier.following()
    program = _Reader(network.module, len(network.states), network.controls, pool, network.counts).program()
    return replace(program, constants=tuple(pool.constants), kernels=pool.kernels)


def _data_dependent_before(program: Program) -> tuple[Step | IfStep | LoopStep, ...]:
    """Returns the steps reordered, so that each comes after those that compute its sizes."""
    writers: dict[Buffer, int] = {buffer: i for i, step in enumerate(program.steps) for buffer in step.writes}
    found = ((buffer, count) for buffer, counts in program.counts.items() for count in counts)
    counters = {count.var: writers[buffer] for buffer, count in found if buffer in writers}
    ordered: dict[int, None] = {}
    for last in range(len(program.steps)):
        waiting = [last]
        while waiting:
            step = program.steps[waiting[-1]]
            needed = {writers[buffer] for buffer in step.reads if buffer in writers}
            needed |= {counters[var] for var in size_variables(step) if var in counters}
            missing = sorted(needed - ordered.keys())
            if missing:
                waiting += missing
            else:
                ordered[waiting.pop()] = None
    return tuple(program.steps[index] for index in ordered)


def size_variables(step: Step | IfStep | LoopStep) -> Iterator[tirx.Var]:
    """Yields the variables of the sizes that a step is called with, and those of the steps in it."""
    for buffer in (*step.reads, *step.writes):
        for size in buffer.shape:
            yield from variables(expression(size))
    if isinstance(step, Step):
        for _, value in step.sizes:
            yield from variables(expression(value))
        return
    if isinstance(step, LoopStep) and step.loop.trip_count is not None:
        yield from variables(expression(step.loop.trip_count))
    for body in step.bodies:
        for inner in body.steps:
            yield from size_variables(inner)


def interface_of(network: Network) -> Program:
    """Returns a program without steps that has the inputs, states and outputs of a network before its passes."""
    main, count = network.module["main"], len(network.outputs)
    params = [_border(MemoryKind.INPUT, index, param) for index, param in enumerate(main.params)]
    outputs = [
        Buffer(MemoryKind.WORKSPACE, i, _shape(ty), str(ty.dtype)) for i, ty in enumerate(result_types(main)[:count])
    ]
    inputs = len(network.inputs)
    counts = {
        Buffer(MemoryKind.WORKSPACE, count + i, (), "int64"): (each,)
        for i, each in enumerate(network.all_data_dependent_sizes)
    }
    return Program((), tuple(params[:inputs]), tuple(params[inputs:]), tuple(outputs), (), (), {}, counts)


_COMPARED_BYTES = 1 << 20  # at once: NumPy makes an array of what it finds


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two byte arrays of the same length are equal."""
    if one.ctypes.data == other.ctypes.data:
        return True
    starts = range(0, len(one), _COMPARED_BYTES)
    return all(np.array_equal(one[n : n + _COMPARED_BYTES], other[n : n + _COMPARED_BYTES]) for n in starts)


class Pool:
    """The constants and kernels of a program and of all its bodies, without duplicates."""

    def __init__(self) -> None:
        self.constants: list[np.ndarray] = []
        self.kernels: dict[tvm.ir.GlobalVar, tirx.PrimFunc] = {}
        self._constants_like: dict[object, list[Buffer]] = {}
        self._kernels_like: dict[object, list[tvm.ir.GlobalVar]] = {}
        self._names: set[str] = set()

    def following(self) -> Pool:
        """Returns the pool of a further program in the same library: it shares constants; kernels have their
        own names.
        """
        made = Pool()
        made.constants, made._constants_like, made._names = self.constants, self._constants_like, self._names
        return made

    def constant(self, expr: relax.Expr) -> Buffer:
        """Returns the buffer of a constant."""
        array = array_of(expr)
        content = array.reshape(-1).view(np.uint8)
        key = (str(expr.ty.dtype), array.shape, xxh3_64_intdigest(content.data))
        if array.nbytes >= LARGE:
            release_pages()
        for buffer in self._constants_like.setdefault(key, []):
            if _same_bytes(self.constants[buffer.index].reshape(-1).view(np.uint8), content):
                return buffer
        buffer = Buffer(MemoryKind.CONSTANT, len(self.constants), array.shape, str(expr.ty.dtype))
        self._constants_like[key].append(buffer)
        self.constants.append(array)
        return buffer

    def add(self, module: tvm.IRModule) -> dict[tvm.ir.GlobalVar, _CalledKernel]:
        """Adds the kernels of a module, and returns the kernel that is called for each."""
        return {gv: self._kernel(gv, f) for gv, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}

    def _kernel(self, var: tvm.ir.GlobalVar, given: tirx.PrimFunc) -> _CalledKernel:
        func, sizes = pass_sizes_as_arguments(given)
        nameless = _nameless(func)
        ranges = tuple((bounds(value), size_hint(value)) for _, value in sizes)
        alike = self._kernels_like.setdefault((tvm_ffi.structural_hash(nameless), ranges), [])
        for other in alike:
            if tvm_ffi.structural_equal(_nameless(self.kernels[other]), nameless):
                canonical_dims = dynamic_sizes_of(self.kernels[other])
                return other, tuple((size, value) for size, (_, value) in zip(canonical_dims, sizes, strict=True))
        hint = str(var.name_hint)
        name = self.free_name(itertools.chain([hint], (f"{hint}_again{number}" for number in itertools.count(1))))
        own = var if name == hint else tvm.ir.GlobalVar(name)
        self.kernels[own] = func
        alike.append(own)
        return own, sizes

    def free_name(self, names: Iterable[str]) -> str:
        """Reserves and returns the first of these names that no kernel in the library has."""
        free = next(name for name in names if name not in self._names)
        self._names.add(free)
        return free


_CalledKernel = tuple[tvm.ir.GlobalVar, SizeArguments]


def _nameless(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a kernel for comparison, without its symbol and the names of its sizes."""
    func, sizes = func.without_attr("global_symbol"), dynamic_sizes_of(func)
    if not sizes:
        return func
    bare = func.without_attr(DYNAMIC_DIMENSIONS)
    return with_fields(bare, params=[*sizes, *bare.params])


class _Reader:
    """Reads the program off one module."""

    def __init__(
        self,
        module: tvm.IRModule,
        states: int,
        controls: tuple[Control, ...],
        pool: Pool,
        counts: tuple[DataDependentSize, ...] = (),
    ) -> None:
        self._main = module["main"]
        self._controls = controls
        self._pool = pool
        self._counts = counts
        self._kernels = pool.add(module)
        self._steps: list[Step | IfStep | LoopStep] = []
        self._temporaries = 0
        self._value: dict[relax.Var, list[Buffer]] = {}
        params = list(self._main.params)
        count = len(params) - states
        self._inputs = tuple(_border(MemoryKind.INPUT, i, p) for i, p in enumerate(params[:count]))
        self._states = tuple(_border(MemoryKind.STATE, i, p) for i, p in enumerate(params[count:]))
        for param, buffer in zip(params, (*self._inputs, *self._states), strict=True):
            self._value[param] = [buffer]

    def program(self) -> Program:
        """Returns the steps of `main` and its borders; constants and kernels are in the pool."""
        for binding in bindings_of(self._main):
            self._value[binding.var] = self._bind(binding.var, binding.value)
        results = self.buffers(self._main.body.body)
        end = len(results) - len(self._counts)
        count = end - len(self._states)
        counts: dict[Buffer, tuple[DataDependentSize, ...]] = {}
        for buffer, each in zip(results[end:], self._counts, strict=True):
            counts[buffer] = (*counts.get(buffer, ()), each)
        program = Program(
            steps=tuple(self._steps),
            inputs=self._inputs,
            states=self._states,
            outputs=tuple(results[:count]),
            new_states=tuple(results[count:end]),
            constants=(),
            kernels={},
            counts=counts,
        )
        return replace(program, steps=_data_dependent_before(program)) if program.counts else program

    def buffers(self, expr: relax.Expr) -> list[Buffer]:
        """Returns the tensors that `expr` stands for."""
        match expr:
            case relax.Tuple():
                return [buffer for field in expr.fields for buffer in self.buffers(field)]
            case relax.TupleGetItem():
                return [self.buffers(expr.tuple_value)[expr.index]]
            case relax.Var():
                return self._value[expr]
        if is_constant(expr):
            return [self._pool.constant(expr)]
        raise CompileError(
            f"cannot lower the expression {str(expr)[:200]}",
            hint="passes over the graph must leave variables, constants, tuples, and calls of kernels",
        )

    def _bind(self, var: relax.Var, value: relax.Expr) -> list[Buffer]:
        if not isinstance(value, relax.Call):
            return self.buffers(value)
        control = control_index(value)
        if control is None and value.op != tvm.ir.Op.get("relax.call_tir"):
            raise CompileError(
                f"the operation {value.op} has no lowering",
                hint="define it by operators that have one: see docs/how-to/add-an-operator.md",
            )
        results = value.ty_args[0]
        types = list(results.fields) if isinstance(results, relax.TupleType) else [results]
        reads = tuple(self.buffers(value.args[1]))
        writes = tuple(map(self._temporary, types))
        if control is None:
            kernel, sizes = self._kernels[value.args[0]]
            self._steps.append(Step(kernel, reads, writes, sizes, debug_locations(var.name)))
            return list(writes)
        match self._controls[control]:
            case If(then, other):
                self._steps.append(IfStep(self._body(then), self._body(other), reads, writes))
            case Loop(body) as loop:
                self._steps.append(LoopStep(loop, self._body(body), reads, writes))
        return list(writes)

    def _body(self, body: Body) -> Program:
        return _Reader(body.module, body.states, body.controls, self._pool, body.counts).program()

    def _temporary(self, ty: relax.TensorType) -> Buffer:
        self._temporaries += 1
        return Buffer(MemoryKind.WORKSPACE, self._temporaries - 1, _shape(ty), str(ty.dtype))


def _border(kind: MemoryKind, index: int, param: relax.Var) -> Buffer:
    return Buffer(kind, index, _shape(param.ty), str(param.ty.dtype))


def _shape(ty: relax.TensorType) -> tuple[Dimension, ...]:
    return dimensions(ty.shape)
