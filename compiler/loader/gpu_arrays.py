"""Checks arrays in GPU or host memory, and converts them to the address ranges that a run on a GPU reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import address_of, source_of, target_for, trimmed
from .dlpack import CUDA, CUDA_MANAGED, Shown, shown_by_capsule
from .gpu import DEFAULT_STREAM, DeviceArray, GpuContext, Span
from .tensors import DTYPES, RunError, Tensor

__all__ = ["check_apart", "gpu_results", "gpu_source", "is_host", "shape_of", "trimmed_on_gpu"]


def is_host(value: Any) -> bool:
    """Return whether an array is in host memory; true for None, an output for which a host array is to be made."""
    if value is None or isinstance(value, np.ndarray):
        return True
    if hasattr(value, "__dlpack_device__"):
        return value.__dlpack_device__()[0] not in (CUDA, CUDA_MANAGED)
    return not hasattr(value, "__cuda_array_interface__")


def gpu_source(gpu: GpuContext, tensor: Tensor, value: Any, stream: int | None) -> Span:
    if is_host(value):
        if stream is not None:
            raise RunError(f'input "{tensor.name}" is in the host\'s memory: runs on a stream take arrays on the GPU')
        array = source_of(tensor, value)
        return Span(address_of(array), array.nbytes, True, array)
    return _device_span(gpu, "input", tensor, value, stream)


def _gpu_target(gpu: GpuContext, tensor: Tensor, value: Any, stream: int | None) -> Span:
    if not is_host(value):
        return _device_span(gpu, "out for", tensor, value, stream)
    if stream is not None:
        raise RunError(f'out for "{tensor.name}" is in the host\'s memory: runs on a stream give arrays on the GPU')
    return Span(address_of(value), value.nbytes, True, value)


def gpu_results(
    gpu: GpuContext, outputs: tuple[Tensor, ...], out: Sequence[Any] | str | None, stream: int | None
) -> tuple[list[Any], list[Span]]:
    """Return the results of a run, and the address ranges that the run writes.

    Args:
        gpu: the session's GPU.
        outputs: of the network, with known shapes.
        out: the caller's arrays, or None for an array that is to be made; "device": all outputs in GPU memory; None:
            all in host memory, or with a stream in GPU memory.
        stream: of the run; None: the run is waited for.

    Raises:
        RunError: an array of `out` does not fit its output, or is in host memory for a run on a stream.
    """
    if out is None and stream is None:
        results: list[Any] = [target_for(tensor, None) for tensor in outputs]
    elif out is None or isinstance(out, str):
        results = [DeviceArray(gpu, tensor, stream) for tensor in outputs]
    else:
        results = [target_for(*p) if is_host(p[1]) else p[1] for p in zip(outputs, out, strict=True)]
    return results, [_gpu_target(gpu, *pair, stream) for pair in zip(outputs, results, strict=True)]


def trimmed_on_gpu(result: Any, shape: tuple[int, ...]) -> Any:
    """Return the part of an output that a run has written, in host or GPU memory; `shape` is that of the part."""
    if not isinstance(result, DeviceArray):
        return trimmed(result, shape)
    result.shape = shape
    return result


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of an array in host or GPU memory."""
    return tuple(value.shape if hasattr(value, "shape") else value.__cuda_array_interface__["shape"])


def _device_span(gpu: GpuContext, role: str, tensor: Tensor, value: Any, stream: int | None) -> Span:
    """Return the address range of an array in GPU memory, which must match the model's type and shape.

    Waits for pending work on the array if it is on another GPU than the session's, whose streams cannot wait for it.

    Raises:
        RunError: the array cannot be read, does not match, is not dense, or may not be written but is an output.
    """
    try:
        show = _shown_by_dlpack if hasattr(value, "__dlpack_device__") else _shown_by_interface
        shown = show(value, stream, gpu)
    except RunError:
        raise
    except Exception as error:  # the array's library may raise any type of error
        raise RunError(f'{role} "{tensor.name}" is a {type(value).__name__} that cannot be read: {error}') from error
    wanted = DTYPES[tensor.dtype]
    kinds = {"bfloat16": ("bfloat", "u"), "bool": ("b",)}.get(tensor.dtype, (wanted.kind,))
    if shown.kind not in kinds or shown.element_bytes != wanted.itemsize:
        raise RunError(
            f'{role} "{tensor.name}" has elements of another type than the model, which has {tensor.dtype}: convert it'
        )
    if shown.shape != tensor.shape:
        raise RunError(
            f'{role} "{tensor.name}" has the shape {list(shown.shape)}, but the model has {list(tensor.shape)}'
        )
    size = int(np.prod(tensor.shape, dtype=np.int64))
    if size > 0 and shown.strides is not None and not _is_dense(shown.shape, shown.strides):
        raise RunError(f'{role} "{tensor.name}" is not dense and row-major: pass a copy that is')
    if shown.read_only and role != "input":
        raise RunError(f'{role} "{tensor.name}" may not be written')
    return Span(shown.address, size * wanted.itemsize, False, shown.owner)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _shown_by_interface(value: Any, stream: int | None, gpu: GpuContext) -> Shown:
    """Return the description of an array by its `__cuda_array_interface__`, version 2 or 3."""
    interface = value.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise RunError("arrays with a mask are not supported")
    dtype, (address, read_only) = np.dtype(interface["typestr"]), interface["data"]
    home = gpu.peer(gpu.number_of(address) if address else gpu.number)
    producer = interface.get("stream")
    if home is not gpu or (producer is not None and producer != stream):
        home.synchronize(DEFAULT_STREAM if producer is None else producer)
    strides = interface.get("strides")
    elements = None if strides is None else tuple(stride // dtype.itemsize for stride in strides)
    shape = tuple(interface["shape"])
    return Shown(address or 0, dtype.kind, dtype.itemsize, shape, elements, bool(read_only), value)


def _shown_by_dlpack(value: Any, stream: int | None, gpu: GpuContext) -> Shown:
    kind, number = value.__dlpack_device__()
    home = gpu if kind == CUDA_MANAGED else gpu.peer(number)
    shown = shown_by_capsule(
        value.__dlpack__(stream=stream if stream is not None and home is gpu else DEFAULT_STREAM), value
    )
    if home is not gpu:
        home.synchronize(DEFAULT_STREAM)
    return shown


def check_apart(
    inputs: tuple[Tensor, ...], sources: list[Span], outputs: tuple[Tensor, ...], targets: list[Span]
) -> None:
    """Check that no output overlaps an input or another output.

    Raises:
        RunError: an output does.
    """
    for i, target in enumerate(targets):
        others = [*zip(inputs, sources, strict=True), *zip(outputs[:i], targets[:i], strict=True)]
        for tensor, other in others:
            if target.address < other.address + other.bytes and other.address < target.address + target.bytes:
                raise RunError(f'out for "{outputs[i].name}" overlaps "{tensor.name}": use an array of its own')
