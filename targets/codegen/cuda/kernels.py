"""Translates scheduled kernels to CUDA source and their launches. Needs neither a GPU nor the CUDA toolkit.

    func(A, C, B):                                       extern "C" __global__ void func_kernel(float *A, float *B)
        for i in thread_binding: B[i] = …         →      extern "C" __global__ void func_kernel_1(float *B, float *C)
        for i in thread_binding: C[i] = …                launch func_kernel(A, workspace), func_kernel_1(workspace, C)

Buffers between launches are parts of the kernel's workspace; `shared` and `local` ones
stay inside the device's code. Dynamic dimensions are further arguments, and grids are computed from them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import GlobalVar, PointerType, PrimType
from tvm.ir.expr import Call
from tvm.tirx.type import TensorMapType

from nnefc.ir.attributes import ARRIVALS, NO_ALIAS, SYNCHRONIZED
from nnefc.ir.rebuild import with_fields
from nnefc.ir.tensor_maps import TensorMap
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import (
    Dimension,
    bounds,
    dimension,
    dimensions,
    element_count,
    expression,
    greatest,
    substituted,
    variables,
)
from nnefc.targets.codegen.cuda.byte_vectors import repeat_bytes_in_words
from nnefc.targets.codegen.cuda.device_functions import (
    DeviceCode,
    DeviceFunction,
    EncodedMap,
    Launch,
    LaunchParameter,
    Scalar,
    Version,
)
from nnefc.targets.codegen.cuda.device_source import is_one_of, source_of
from nnefc.targets.codegen.cuda.float8_conversions import convert_float8
from nnefc.targets.codegen.cuda.formulas import C_REALS, Formula, Number, number_of
from nnefc.targets.codegen.cuda.gpu_operators import register_gpu_operators
from nnefc.targets.codegen.cuda.infinite_constants import convert_infinite_constants
from nnefc.targets.codegen.cuda.integer_promotion import truncate_promoted_integers
from nnefc.targets.codegen.cuda.truncating_division import use_truncating_division
from nnefc.targets.codegen.cuda.uniform_selects import branch_on_uniform_conditions
from nnefc.targets.description.c_strings import c_string
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import LARGEST_BLOCK, LARGEST_GRID

__all__ = [
    "DeviceKernel",
    "NotOnDevice",
    "device_kernel",
    "joined",
    "with_version",
    "without_versions",
]


@dataclass(frozen=True)
class DeviceKernel:
    """A function with the code of its launches, lowered as far as TVM's code generator needs it.

    Attributes:
        workspace_bytes: what the buffers of its workspace need together.
        versions: the kernels that are called instead, as the function's versions say.
    """

    function: DeviceFunction
    module: tvm.IRModule
    workspace_bytes: Dimension
    versions: tuple[DeviceKernel, ...] = ()

    @property
    def architectures_of_versions(self) -> tuple[int, ...]:
        """Returns the architectures whose devices never run the kernel itself, but one of its versions."""
        return tuple(number for each in self.function.versions if not each.values for number in each.architectures)


def with_version(
    general: DeviceKernel,
    version: DeviceKernel,
    sizes: Sequence[tirx.Var],
    values: Mapping[tirx.Var, int],
    architectures: Sequence[int] = (),
) -> DeviceKernel:
    """Returns a kernel that does as `version` where it is called with these values of some of its sizes.

    Args:
        sizes: all of the general kernel.
        architectures: those of the devices on which it does so; empty for all.
    """
    named = dict(zip(sizes, general.function.sizes, strict=True))
    chosen = tuple((named[size], value) for size, value in values.items())
    has_workspace = any(parameter.offset is not None for parameter in version.function.parameters)
    added = Version(version.function.name, chosen, has_workspace, tuple(architectures))
    function = replace(general.function, versions=(*general.function.versions, added))
    workspace_bytes = greatest(general.workspace_bytes, version.workspace_bytes)
    return DeviceKernel(function, general.module, workspace_bytes, (*general.versions, version))


def without_versions(kernel: DeviceKernel) -> DeviceKernel:
    """Returns the kernel that computes all sizes on all devices itself."""
    return replace(kernel, function=replace(kernel.function, versions=()), versions=())


def joined(kernels: Sequence[DeviceKernel], target: CudaTarget) -> DeviceCode:
    """Returns the source of several functions, in their order, each behind those that are called in its position."""
    module, functions, messages = tvm.IRModule({}), [], dict[str, int]()
    for kernel in (each for one in kernels for each in (*one.versions, one)):
        with_reports, reporting = _with_reports(kernel.module, messages)
        module.update(with_reports)
        launches = (replace(launch, reports=launch.kernel in reporting) for launch in kernel.function.launches)
        functions.append(replace(kernel.function, launches=tuple(launches)))
    written = tuple(c_string(message.encode()) for message in messages)
    return DeviceCode(source_of(module, target, _conditions(kernels)), tuple(functions), written)


def _conditions(kernels: Sequence[DeviceKernel]) -> dict[str, str]:
    """Returns the conditions of C's preprocessor for kernels that devices of some architectures alone run."""
    found: dict[str, str] = {}
    for kernel in kernels:
        for version, made in zip(kernel.function.versions, kernel.versions, strict=True):
            if version.architectures:
                found |= {launch.kernel: is_one_of(version.architectures) for launch in made.function.launches}
        if kernel.architectures_of_versions:
            condition = f"!({is_one_of(kernel.architectures_of_versions)})"
            found |= {launch.kernel: condition for launch in kernel.function.launches}
    return found


_ALIGNMENT = 256  # bytes, of what a kernel has for itself


class NotOnDevice(Exception):
    """A kernel whose schedule cannot be translated to code for the device."""


# TVM's own way from TIR to CUDA, without the passes that know nothing to do here.
_LOWER = tvm.ir.transform.Sequential(
    [
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LiftThreadBinding(),
        s_tir.transform.ManifestSharedMemoryLocalStage(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerAutoCopy(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.InjectPermutedLayout(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.InjectSoftwarePipeline(),
        s_tir.transform.TransformMmaBufferLayout(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
        tirx.transform.VectorizeLoop(True),
        s_tir.transform.InjectVirtualThread(),
        s_tir.transform.InjectDoubleBuffer(),
        tirx.transform.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.CommonSubexprElim(),
        tirx.transform.AnnotateEntryFunc(),
    ]
)
_SYNCHRONIZE = tvm.ir.transform.Sequential([s_tir.transform.ThreadSync(s) for s in ("shared", "shared.dyn", "warp")])
_TAKE_OUT = tvm.ir.transform.Sequential(
    [
        s_tir.transform.InferFragment(),
        s_tir.transform.LowerThreadAllreduce(),
        s_tir.transform.InjectPTXAsyncCopy(),
        s_tir.transform.MergeSharedMemoryAllocations(),
        tirx.transform.SplitHostDevice(),
    ]
)


def _all_lanes(_call: Call) -> tirx.Expr:
    return tirx.const(0xFFFFFFFF, "uint32")


# TVM's reductions among threads shuffle with the lanes that `__activemask()` finds together. After a loop of which
# lanes have taken different numbers of iterations these need not be all; but all reach the shuffles, so all can be
# named.
tirx.register_intrin_lowering("tirx.tvm_warp_activemask", target="cuda", f=_all_lanes, level=100)
register_gpu_operators()

_FINISH = tvm.ir.transform.Sequential(
    [
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
        tirx.transform.LowerWarpMemory(),
        tirx.transform.StmtSimplify(),
        tirx.transform.LowerIntrin(),
    ]
)


def device_kernel(
    name: str,
    kernel: tirx.PrimFunc,
    workspace_buffers: int,
    target: CudaTarget,
    sizes: Sequence[tirx.Var] = (),
    named: Sequence[tuple[tirx.Var, tirx.Expr]] = (),
) -> DeviceKernel:
    """Returns the launch of a kernel, and its device functions.

    Args:
        kernel: its loops are bound to threads.
        workspace_buffers: how many of its parameters, the last ones, are its workspace.
        sizes: what it is written with that is known at run time.
        named: variables that it is written with besides, and what sizes these stand for.

    Raises:
        NotOnDevice: it has statements outside of bound loops, or launches that no device can do.
    """
    names = {size: f"size{number}" for number, size in enumerate([*sizes, *(var for var, _ in named)])}
    parameters, workspace_bytes = _parameters(kernel, workspace_buffers, names)
    for var, size in reversed(named):
        workspace_bytes = substituted(workspace_bytes, {var: dimension(size)})
    given = [*kernel.params, *names]
    func = with_fields(kernel, params=given) if sizes else kernel
    func = func.with_attr("global_symbol", name)
    module = tirx.transform.BindTarget(target.to_tvm())(tvm.IRModule({name: func}))
    with target.to_tvm():
        lowered = _LOWER(module)
        module = tvm.IRModule({gv: convert_float8(func) for gv, func in lowered.functions.items()}, lowered.attrs)
        module = _TAKE_OUT(module if SYNCHRONIZED in kernel.attrs else _SYNCHRONIZE(module))
    host = module[name]
    device = {gv: _plainly_named(f) for gv, f in module.functions.items() if gv.name_hint != name}
    if NO_ALIAS in kernel.attrs and not kernel.attrs[NO_ALIAS]:  # what TVM says of all that it takes out
        device = {gv: f.with_attr(NO_ALIAS, False) for gv, f in device.items()}
    launches = tuple(launch for launch in _launches(host, names) if launch.threads != 0)
    for launch in launches:
        _check(launch, target)
    device, launches = _with_tensor_maps(device, launches)
    if names:
        by_name = {launch.kernel: launch for launch in launches}
        device = {  # what computes nothing is not launched
            gv: _with_truncating_division(func, by_name[gv.name_hint]) if gv.name_hint in by_name else func
            for gv, func in device.items()
        }
    own_names = tuple((names[var], number_of(dimension(size), names)) for var, size in named)
    function = DeviceFunction(name, parameters, launches, tuple(names[size] for size in sizes), own_names)
    finished = _FINISH(tvm.IRModule(device))
    # last: TVM drops such casts
    written = {
        gv: convert_infinite_constants(
            repeat_bytes_in_words(truncate_promoted_integers(branch_on_uniform_conditions(func)))
        )
        for gv, func in finished.functions.items()
    }
    return DeviceKernel(function, tvm.IRModule(written, finished.attrs), workspace_bytes)


def _parameters(
    kernel: tirx.PrimFunc, workspace_buffers: int, names: Mapping[tirx.Var, str]
) -> tuple[tuple[LaunchParameter, ...], Dimension]:
    """Returns a kernel's buffers, and what those of its workspace need together."""
    parameters, offset = [], 0
    count = len(kernel.params) - workspace_buffers
    arrivals = kernel.attrs.get(ARRIVALS)
    for position, buffer in enumerate(kernel.params):
        size = element_count(dimensions(buffer.shape)) * element_bytes(str(buffer.dtype))
        if position >= count and arrivals is not None and str(buffer.name) == str(arrivals):
            parameters.append(LaunchParameter(str(buffer.name), size, counts_arrivals=True))
            continue
        is_own = position >= count
        own_offset = number_of(offset, names) if is_own else None
        parameters.append(LaunchParameter(str(buffer.name), number_of(size, names), own_offset))
        offset += -(-size // _ALIGNMENT) * _ALIGNMENT if is_own else 0
    return tuple(parameters), offset


def _with_truncating_division(func: tirx.PrimFunc, launch: Launch) -> tirx.PrimFunc:
    arguments = zip(func.params, launch.arguments, strict=True)
    sizes = ((var, given) for var, given in arguments if isinstance(given, Scalar) and given.dtype not in C_REALS)
    return use_truncating_division(func, {var: given.bounds for var, given in sizes})


def _with_tensor_maps(
    device: Mapping[GlobalVar, tirx.PrimFunc], launches: Sequence[Launch]
) -> tuple[dict[GlobalVar, tirx.PrimFunc], tuple[Launch, ...]]:
    """Returns kernels whose last parameters are the tensor maps that they name, and their launches."""
    changed, by_name = dict(device), {launch.kernel: launch for launch in launches}
    for gv, func in device.items():
        launch = by_name.get(gv.name_hint)
        if launch is None:
            continue
        buffers = dict(zip(func.params, launch.arguments, strict=True))
        bound: dict[tirx.Var, tirx.Expr] = {}
        tvm_ffi.structural_walk(
            func.body,
            (
                (tirx.DeclBuffer, functools.partial(_name_buffer, buffers)),
                (tirx.Bind, functools.partial(_name_value, bound)),
            ),
        )
        maps: dict[EncodedMap, tirx.Var] = {}
        body = tvm_ffi.structural_map(func.body, (Call, functools.partial(_mapped, buffers, bound, maps)))
        if maps:
            changed[gv] = with_fields(func, params=[*func.params, *maps.values()], body=body)
            by_name[gv.name_hint] = replace(launch, arguments=(*launch.arguments, *maps))
    return changed, tuple(by_name[launch.kernel] for launch in launches)


def _name_buffer(buffers: dict[tirx.Var, int | Scalar | EncodedMap], declared: tirx.DeclBuffer) -> None:
    """Adds the other name of a parameter."""
    if declared.data in buffers:
        buffers[declared.buffer] = buffers[declared.data]


def _name_value(bound: dict[tirx.Var, tirx.Expr], made: tirx.Bind) -> None:
    bound[made.var] = made.value


def _mapped(
    given: Mapping[tirx.Var, int | Scalar | EncodedMap],
    bound: Mapping[tirx.Var, tirx.Expr],
    maps: dict[EncodedMap, tirx.Var],
    call: Call,
) -> tirx.Expr:
    """Returns the parameter that a tensor map becomes, for what stands for it in a kernel.

    Args:
        given: the launch's arguments by the kernel's parameters.
        bound: what variables of the kernel stand for, in their order.
    """
    found = TensorMap.of(call, lambda size: _size_of(size, bound))
    if found is None:
        return call
    first, of = found
    parameter = given[first.source]
    assert isinstance(parameter, int)
    each = element_bytes(str(first.source.dtype))
    names = {var: str(scalar.value) for var, scalar in given.items() if isinstance(scalar, Scalar)}

    sizes = tuple(number_of(size, names) for size in of.sizes)
    strides = tuple(number_of(stride * each, names) for stride in of.strides)
    begin = int(first.indices[0].value) * each
    encoded = EncodedMap(parameter, begin, each * of.joined, sizes, strides, of.box, of.steps, of.row_vectors)
    return maps.setdefault(encoded, tirx.Var(f"tensor_map{len(maps)}", PointerType(TensorMapType())))


def _plainly_named(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function of the device's whose parameters and own tensors are called as C++ allows it; models name
    tensors and dimensions as they like.

    Numbers get a prefix: a dimension may be called `new` or `max`, and tensors have a suffix already.
    """
    renamed = {
        param: tirx.Var(_portable_name(param, position), param.ty)
        for position, param in enumerate(func.params)
        if isinstance(param.ty, PrimType) or not _is_identifier(param)
    }
    own: list[tirx.Var] = []
    tvm_ffi.structural_walk(func.body, ((tirx.AllocBuffer, tirx.DeclBuffer), lambda part: own.append(part.buffer)))
    for buffer in dict.fromkeys(own):
        if not _is_identifier(buffer):
            renamed[buffer] = tirx.Var(f"t{len(renamed)}", buffer.ty)
    if not renamed:
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda var: renamed.get(var, var)))
    return with_fields(func, params=[renamed.get(param, param) for param in func.params], body=body)


def _portable_name(param: tirx.Var, position: int) -> str:
    if not isinstance(param.ty, PrimType):
        return f"p{position}_ptr"
    return f"n_{param.name}" if _is_identifier(param) else f"n{position}"


def _is_identifier(var: tirx.Var) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", str(var.name), re.ASCII) is not None


def _launches(host: tirx.PrimFunc, names: Mapping[tirx.Var, str]) -> list[Launch]:
    """Returns the launches that are left of a function when its device code is taken out of it."""
    position = {buffer: index for index, buffer in enumerate(host.params)}
    statements = list(host.body.seq) if isinstance(host.body, tirx.SeqStmt) else [host.body]
    launches, known = [], dict[tirx.Var, tirx.Expr]()
    for statement in statements:
        match statement:
            case tirx.DeclBuffer(data=Call(op=tvm.ir.Op(name="tirx.buffer_data"))):  # the same, flat
                position[statement.buffer] = position[statement.data.args[0]]
            case tirx.Evaluate(value=Call(op=tvm.ir.Op(name="tirx.call_ffi_kernel"))):
                launches.append(_launch(statement.value, position, known, names))
            case tirx.Evaluate(value=tirx.IntImm()):  # nothing
                pass
            case tirx.Bind() if names:  # what several launches need of sizes
                value = _size_of(statement.value, known)
                known[statement.var] = expression(value).astype(statement.var.ty.dtype)
            case _:
                raise NotOnDevice(f"a kernel has statements outside of its bound loops: {statement}")
    return launches


def _size_of(expr: int | tirx.Expr, known: Mapping[tirx.Var, tirx.Expr]) -> Dimension:
    """Returns what a launch needs as a size; `known` are the values of variables, written with others or without.

    These come before the first simplification, which takes a variable that it does not know for a size: not negative.
    """
    while not isinstance(expr, int) and any(var in known for var in variables(expr)):
        expr = tvm_ffi.structural_map(expr, (tirx.Var, lambda var: known.get(var, var)))
    return dimension(expr)


_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"


def _launch(
    call: Call,
    position: Mapping[tirx.Var, int],
    known: Mapping[tirx.Var, tirx.Expr],
    names: Mapping[tirx.Var, str],
) -> Launch:
    def size(expr: tirx.Expr) -> Dimension:
        return _size_of(expr, known)

    def number(expr: tirx.Expr) -> Number:
        try:
            return number_of(size(expr), names)
        except KeyError as error:
            raise NotOnDevice(f"a kernel depends on {error}, which is no size") from error

    symbol, *tail = call.args
    tags = [str(tag) for tag in call.attrs.launch_params]
    count = len(tail) - len(tags)
    sizes = dict(zip(tags, map(number, tail[count:]), strict=True))
    gx, gy, gz, bx, by, bz = (sizes.pop(f"{part}Idx.{axis}", 1) for part in ("block", "thread") for axis in "xyz")
    shared = sizes.pop(_DYNAMIC_SHARED, 0)
    if sizes:
        raise NotOnDevice(f"a kernel asks for {', '.join(sizes)}")
    fixed = [size for size in (gy, gz, bx, by, bz, shared) if isinstance(size, int)]
    if len(fixed) < 6:
        raise NotOnDevice("the sizes of a kernel's blocks are open")
    arguments = tuple(
        Scalar(str(argument.ty.dtype), number(argument), bounds(size(argument)))
        if isinstance(argument.ty, PrimType)
        else position[argument.args[0]]
        for argument in tail[:count]
    )
    gy, gz, bx, by, bz, shared = fixed
    return Launch(str(symbol.value), (gx, gy, gz), (bx, by, bz), shared, arguments)


def _check(launch: Launch, target: CudaTarget) -> None:
    """Rejects a launch that a device would refuse."""
    sizes = zip((*launch.grid, *launch.block), (*LARGEST_GRID, *LARGEST_BLOCK), strict=True)
    if (
        any(not isinstance(size, Formula) and size > largest for size, largest in sizes)
        or math.prod(launch.block) > target.threads_per_block
    ):
        raise NotOnDevice(f"{launch.kernel} has {launch.grid} blocks of {launch.block} threads")
    if launch.shared_bytes > target.max_shared_bytes:
        raise NotOnDevice(f"{launch.kernel} asks for {launch.shared_bytes} bytes of shared memory")


_EXTERN = tvm.ir.Op.get("tirx.call_extern")
_KERNEL_ERROR = "nnefc_kernel_error"  # of the runtime of a CPU


def _with_reports(module: tvm.IRModule, messages: dict[str, int]) -> tuple[tvm.IRModule, set[str]]:
    """Kernels that report write the number of the first message to a word; its address becomes their last parameter.

    Args:
        messages: the numbers of those that were seen before; more are added.

    Returns:
        The kernels, and the names of those that report.
    """
    reporting: dict[GlobalVar, tirx.PrimFunc] = {}
    for gv, func in sorted(module.functions.items(), key=lambda element: element[0].name_hint):
        failure = tirx.Var("nnefc_failure", PointerType(PrimType("int32")))
        body = tvm_ffi.structural_map(func.body, (Call, functools.partial(_report, failure, messages)))
        if not body.same_as(func.body):
            reporting[gv] = with_fields(func, params=[*func.params, failure], body=body)
    return tvm.IRModule({**module.functions, **reporting}), {gv.name_hint for gv in reporting}


def _report(failure: tirx.Var, messages: dict[str, int], call: Call) -> Call:
    if not call.op.same_as(_EXTERN) or call.args[0].value != _KERNEL_ERROR:
        return call
    number = messages.setdefault(str(call.args[1].value), len(messages) + 1)
    return tirx.call_extern("int32", "atomicCAS", failure, tirx.IntImm("int32", 0), tirx.IntImm("int32", number))
