"""Sparse tensors in the form of onnxruntime: values and where they are, in coordinates or compressed rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from ..devices import OrtDevice
from ..enums import OrtSparseFormat
from .element_types import element_of_array

__all__ = ["RawSparseTensor", "SparseBlockSparseView", "SparseCooView", "SparseCsrView", "SparseTensor"]

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RawSparseTensor:
    """The contents of a sparse tensor: `SparseTensor` of onnxruntime's module of C++ classes."""

    format: OrtSparseFormat
    shape: tuple[int, ...]
    values: np.ndarray
    indices: tuple[_Indices, ...]


class SparseCooView:
    """The coordinates of values."""

    def __init__(self, indices: _Indices) -> None:
        self._indices = indices

    def indices(self) -> _Indices:
        """Returns an index into the flat tensor for each value, or a row and a column."""
        return self._indices


class SparseCsrView:
    """The coordinates of values in compressed rows."""

    def __init__(self, inner: _Indices, outer: _Indices) -> None:
        self._inner, self._outer = inner, outer

    def inner(self) -> _Indices:
        """Returns the column of each value."""
        return self._inner

    def outer(self) -> _Indices:
        """Returns where each row begins in the values, and where the last one ends."""
        return self._outer


class SparseBlockSparseView:
    """The coordinates of blocks of values."""

    def __init__(self, indices: _Indices) -> None:
        self._indices = indices

    def indices(self) -> _Indices:
        """Returns the row and the column of each block."""
        return self._indices


class SparseTensor:
    """A sparse tensor. It is data for programs that pass it on: models take dense tensors."""

    def __init__(self, sparse_tensor: RawSparseTensor) -> None:
        if not isinstance(sparse_tensor, RawSparseTensor):
            raise ValueError(f"a sparse tensor is made of arrays, and not of a {type(sparse_tensor).__name__}")
        self._tensor = sparse_tensor

    def _get_c_tensor(self) -> RawSparseTensor:
        return self._tensor

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: _Indices, values: np.ndarray, coo_indices: _Indices, ort_device: OrtDevice
    ) -> SparseTensor:
        """Returns a tensor by coordinates: an index into the flat tensor for each value, or a row and a column.

        Raises:
            RuntimeError: there are other numbers of values and of indices.
        """
        _check_device(ort_device)
        if coo_indices.size not in (values.size, 2 * values.size):
            raise RuntimeError(f"there are {coo_indices.size} indices of {values.size} values: one or two each")
        return cls(_raw(OrtSparseFormat.ORT_SPARSE_COO, dense_shape, values, coo_indices))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: _Indices,
        values: np.ndarray,
        inner_indices: _Indices,
        outer_indices: _Indices,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Returns a tensor in compressed rows.

        Raises:
            RuntimeError: the numbers of values, columns and rows do not fit.
        """
        _check_device(ort_device)
        if inner_indices.size != values.size or outer_indices.size not in (0, int(dense_shape[0]) + 1):
            counts = f"{inner_indices.size} columns and {outer_indices.size} begins of rows"
            raise RuntimeError(f"there are {counts} for {values.size} values of {int(dense_shape[0])} rows")
        return cls(_raw(OrtSparseFormat.ORT_SPARSE_CSRC, dense_shape, values, inner_indices, outer_indices))

    def values(self) -> np.ndarray:
        """Returns the values, which may not be written."""
        return self._tensor.values

    def as_coo_view(self) -> SparseCooView:
        """Returns the coordinates.

        Raises:
            RuntimeError: the tensor is in another format.
        """
        return SparseCooView(*self._indices_in(OrtSparseFormat.ORT_SPARSE_COO))

    def as_csrc_view(self) -> SparseCsrView:
        """Returns the compressed rows.

        Raises:
            RuntimeError: the tensor is in another format.
        """
        return SparseCsrView(*self._indices_in(OrtSparseFormat.ORT_SPARSE_CSRC))

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """Returns the blocks.

        Raises:
            RuntimeError: the tensor is in another format.
        """
        return SparseBlockSparseView(*self._indices_in(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE))

    def to_cuda(self, ort_device: OrtDevice) -> NoReturn:
        """Refuses a copy on a GPU.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("sparse tensors stay in the host's memory: models take dense tensors")

    def format(self) -> OrtSparseFormat:
        """Returns the format."""
        return self._tensor.format

    def dense_shape(self) -> list[int]:
        """Returns the shape of the dense tensor."""
        return list(self._tensor.shape)

    def data_type(self) -> str:
        """Returns ONNX's name of the type."""
        return f"sparse_tensor({element_of_array(self._tensor.values).name})"

    def device_name(self) -> str:
        """Returns "cpu"."""
        return "cpu"

    def _indices_in(self, wanted: OrtSparseFormat) -> tuple[_Indices, ...]:
        if self._tensor.format != wanted:
            raise RuntimeError(f"the sparse tensor has the format {self._tensor.format.name}, and not {wanted.name}")
        return self._tensor.indices


def _raw(form: OrtSparseFormat, shape: _Indices, values: np.ndarray, *indices: _Indices) -> RawSparseTensor:
    element_of_array(values)
    return RawSparseTensor(form, tuple(map(int, shape)), _frozen(values), tuple(map(_frozen, indices)))


def _frozen(array: np.ndarray) -> np.ndarray:
    """Returns a view that may not be written, as onnxruntime's."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _check_device(device: OrtDevice) -> None:
    if not isinstance(device, OrtDevice):
        raise TypeError(f"ort_device is a {type(device).__name__}, and not an OrtDevice")
