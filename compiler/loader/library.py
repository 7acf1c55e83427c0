"""Opens a shared library, reads its metadata, creates its sessions, and closes it with the last session."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from .encrypted_weights import DecryptedWeights, WeightsKey, decrypted_weights
from .files import check_file, labels_of, next_to
from .forks import keep_lock
from .interface import (
    ABI_VERSION,
    BUSY,
    CANCELLED,
    DATA_DEPENDENT,
    DESCRIPTION_BYTES,
    DYNAMIC_ABI_VERSION,
    OK,
    OPTIONS_BYTES,
    TIMED_OUT,
    UNSUPPORTED_CPU,
    DescriptionStruct,
    OptionsStruct,
)
from .private_files import PrivateFile
from .spellings import SPELLINGS
from .tensors import TYPES, Dimension, LoadError, RunCancelled, RunError, RunTimedOut, Tensor

__all__ = ["Library"]

_MAX_THREADS = 1024  # of a session


class Library:
    """An opened shared library and its description; it is unloaded when its last session is destroyed."""

    def __init__(
        self,
        path: Path,
        weights: Path | None,
        weights_key: WeightsKey | None = None,
        copies: tuple[PrivateFile, PrivateFile | None] | None = None,
    ) -> None:
        """Open a library and read its description.

        Args:
            path: of the library, or a name for messages if there are `copies`.
            weights: the weights file; None: the one in the library's folder, if it needs one.
            weights_key: the key of an encrypted weights file.
            copies: private copies of the library and its weights file, which are opened instead and closed with it.

        Raises:
            LoadError: the library cannot be loaded on this machine, or its weights file cannot be used.
        """
        self.path = path
        self.shown = str(path)  # the name in messages of runs: for a library in a cache, that of the model
        self._weights_path = weights
        self._copies = [copy for copy in copies or () if copy is not None]
        self.file = copies[0].path if copies else path
        self._weights_file = copies[1].path if copies and copies[1] is not None else weights
        self._decrypted: DecryptedWeights | None = None
        try:
            check_file(path, self.file)
            self._spelling = SPELLINGS.claim(self.file, real=copies is None)
        except BaseException:
            self._close_copies()
            raise
        try:
            self.dll = _open_library(self._spelling)
        except OSError as error:
            SPELLINGS.release(self._spelling)
            self._close_copies()
            raise LoadError(f"{path} cannot be loaded: {error}") from error
        self._lock: threading.RLock
        keep_lock(self, threading.RLock)  # reentrant: a garbage collection under the lock may close another session
        self._sessions = 0
        self._unloaded = False
        try:
            self._declare()
            self._describe()
            self._check_constants()
            self._decrypt(weights_key)
            self.labels = labels_of(self.file)
        except BaseException:
            self._unload()
            raise

    def _declare(self) -> None:
        dll, session = self.dll, c_void_p
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_describe": (POINTER(DescriptionStruct), []),
            "nnefc_create": (c_int32, [POINTER(OptionsStruct), POINTER(session)]),
            "nnefc_destroy": (c_int32, [session]),
            "nnefc_run": (c_int32, [session, c_void_p, c_void_p]),  # ctypes checks POINTER(c_void_p) slowly
            "nnefc_reset": (c_int32, [session]),
            "nnefc_last_error": (c_char_p, [session]),
            "nnefc_status_name": (c_char_p, [c_int32]),
        }
        on_device: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_enqueue": (c_int32, [session, c_void_p, c_void_p, c_void_p]),
            "nnefc_synchronize": (c_int32, [session]),
        }
        where_dynamic: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_resize": (c_int32, [session, c_void_p]),
            "nnefc_reserve": (c_int32, [session, c_void_p, c_int32]),
            "nnefc_output_shape": (POINTER(c_int64), [session, c_uint32]),
            "nnefc_run_sized": (c_int32, [session, c_void_p, c_void_p]),
        }
        with_states: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_get_state": (c_int32, [session, c_uint32, c_void_p]),
            "nnefc_set_state": (c_int32, [session, c_uint32, c_void_p]),
            "nnefc_copy_states": (c_int32, [session, session]),
            "nnefc_copy_sequence": (c_int32, [session, c_int64, session, c_int64, c_int64]),
            "nnefc_measure_states": (c_int32, [session, c_void_p]),
        }
        with_times: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_profile": (c_uint32, [c_void_p, c_uint32]),
            "nnefc_profile_reset": (None, []),
            "nnefc_profile_trace": (c_uint64, [c_void_p, c_uint64]),
        }
        of_later_versions: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_check": (c_int32, []),
            "nnefc_cancel": (c_int32, [session]),
            "nnefc_select_outputs": (c_int32, [session, c_char_p]),
            "nnefc_time_kernels": (c_int32, [session, c_int32]),
            "nnefc_session_times": (c_uint32, [session, c_void_p, c_uint32]),
            "nnefc_tokenize": (c_int32, [c_char_p, c_size_t, c_uint32, c_void_p, c_size_t, c_void_p]),
            "nnefc_detokenize": (c_int32, [c_void_p, c_size_t, c_uint32, c_void_p, c_size_t, c_void_p]),
            "nnefc_chat": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p]),
        }
        special = of_later_versions | on_device | where_dynamic | with_states | with_times
        for name, (result, arguments) in (signatures | special).items():
            try:
                function = getattr(dll, name)
            except AttributeError:
                if name in special:
                    continue
                raise LoadError(f"{self.path} is a shared library, but not a network compiled by nnefc") from None
            function.restype, function.argtypes = result, arguments

    def _describe(self) -> None:
        description = self.dll.nnefc_describe().contents
        if (
            description.abi_version not in (ABI_VERSION, DYNAMIC_ABI_VERSION)
            or description.struct_size < DESCRIPTION_BYTES
        ):
            raise LoadError(
                f"{self.path} has version {description.abi_version} of nnefc's interface, but this loader knows "
                f"version {ABI_VERSION}: compile the model again, or use the loader of the nnefc that compiled it"
            )
        self.takes_times = hasattr(self.dll, "nnefc_profile")
        self.name = description.model.decode()
        self.target = description.target.decode()
        self.compiler = description.compiler.decode()
        self.is_dynamic = description.abi_version == DYNAMIC_ABI_VERSION
        outputs = (description.outputs[index] for index in range(description.output_count))
        self.is_data_dependent = any(DATA_DEPENDENT in tensor.shape[: tensor.rank] for tensor in outputs)
        inputs = (description.inputs[index] for index in range(description.input_count))
        dimensions_used = {size for tensor in inputs for size in tensor.shape[: tensor.rank] if size < 0}
        # A dimension that no input has is computed from others, or is data-dependent.
        self.finds_sizes = self.is_data_dependent and len(dimensions_used) < description.dimension_count
        self.dimensions = _dimensions(description)
        names = [dimension.name for dimension in self.dimensions]
        self.inputs = _tensors(description.inputs, description.input_count, names)
        self.outputs = _tensors(description.outputs, description.output_count, names)
        self.states = _tensors(description.states, description.state_count)
        self.workspace_bytes = int(description.workspace_bytes)
        self.constant_bytes = int(description.constant_bytes)
        self.state_bytes = int(description.state_bytes)
        self.cpu_features = tuple(description.cpu_features[i].decode() for i in range(description.cpu_feature_count))
        self.variables = tuple(description.variables[i].decode() for i in range(description.variable_count))
        size = description.struct_size
        has_source = size >= DescriptionStruct.device.offset
        has_device = size >= DescriptionStruct.dimension_count.offset
        self.source = description.source.decode() if has_source else ""
        self.weights = description.weights.decode() if has_source and description.weights is not None else None
        self.device = description.device.decode() if has_device else "cpu"
        self.device_bytes = int(description.device_bytes) if has_device else 0
        self.metadata = _metadata(description) if size >= ctypes.sizeof(DescriptionStruct) else {}
        if self._weights_path is not None and self.weights is None:
            raise LoadError(f"{self.path} contains its weights: load it without a weights file")
        if self._copies and self._weights_file is None and self.weights is not None:
            raise LoadError(f"{self.path} has its weights in a file, {self.weights}: name it, weights=PATH")

    def _check_constants(self) -> None:
        """Let the library check the checksum of its constants.

        Raises:
            LoadError: the checksum is wrong.
        """
        if hasattr(self.dll, "nnefc_check"):
            status = self.dll.nnefc_check()
            if status != OK:
                raise LoadError(f"{self._reason(status, None)}; copy it again")

    def _decrypt(self, key: WeightsKey | None) -> None:
        """Decrypt the weights file, once for all sessions, if it is encrypted; the library itself maps other files.

        Raises:
            LoadError: as :func:`decrypted_weights`, or there is a key although the library contains its weights.
        """
        if self.weights is not None:
            named = self._weights_path or next_to(self.path, self.weights)
            self._decrypted = decrypted_weights(named, key, self._weights_file or named)
        elif key is not None and not callable(key):
            raise LoadError(
                f"{self.path} contains its weights, which are not encrypted: load it without a key for them"
            )

    def create(
        self, threads: int | None, device: int, flush_subnormals: bool, processors: Sequence[int] | None = None
    ) -> c_void_p:
        """Create a session, and return its handle; arguments as in :func:`load`.

        Raises:
            LoadError: an argument is wrong, or the session cannot be created.
            RunError: the library has been unloaded.
        """
        if processors is not None:
            threads = len(processors) if threads is None else threads
            if len(processors) != threads or not all(type(n) is int and 0 <= n < 1 << 31 for n in processors):
                raise LoadError(f"processors is {processors!r}, not a number for each of {threads} threads")
        if threads is not None and (type(threads) is not int or not 1 <= threads <= _MAX_THREADS):
            raise LoadError(
                f"threads is {threads!r}, not a number from 1 to {_MAX_THREADS}; more than this machine's "
                f"{os.cpu_count()} processors do not help, and as many are the default"
            )
        if type(device) is not int or not 0 <= device < 1 << 31:
            raise LoadError(f"device is {device!r}, not the number of a GPU")
        if device != 0 and self.device == "cpu":
            raise LoadError(f"device is {device}, but the model {self.name} runs on processors")
        options = OptionsStruct(OPTIONS_BYTES, threads or 0, None, 0, None, device, not flush_subnormals)
        if self._weights_file is not None:
            options.struct_size = OptionsStruct.device.offset
            options.weights = os.fsencode(self._weights_file)
        if self.device != "cpu":
            options.struct_size = OptionsStruct.keep_subnormals.offset
        if not flush_subnormals:
            options.struct_size = OptionsStruct.processors.offset
        if processors is not None:
            options.struct_size = OptionsStruct.constant_bytes.offset
            options.processors = (c_int32 * len(processors))(*processors)
        if self._decrypted is not None:
            options.struct_size = ctypes.sizeof(OptionsStruct)
            options.constant_bytes, options.constants = self._decrypted.size, self._decrypted.address
        session = c_void_p()
        with self._lock:
            if self._unloaded:
                raise RunError(f"the model {self.name} is closed: load it again")
            status = self.dll.nnefc_create(byref(options), byref(session))
            if status != OK:
                reason = self._reason(status, None)
                if self._sessions == 0:
                    self._unload()
                raise LoadError(reason)  # not kept in a local variable, which would form a cycle with its traceback
            self._sessions += 1
        return session

    def destroy(self, session: c_void_p) -> None:
        """Free a session; unload the library after the last one."""
        with self._lock:
            self.check(self.dll.nnefc_destroy(session), session)
            self._sessions -= 1
            if self._sessions == 0:
                self._unload()

    def _unload(self) -> None:
        self._unloaded = True
        _close_library(self.dll)
        SPELLINGS.release(self._spelling)
        if self._decrypted is not None:
            self._decrypted.close()
        self._close_copies()

    def _close_copies(self) -> None:
        for copy in self._copies:
            copy.close()

    def function(self, name: str) -> Any:
        """Return a function of the library that libraries of earlier versions lack.

        Raises:
            RunError: the library has no such function.
        """
        try:
            return getattr(self.dll, name)
        except AttributeError:
            raise RunError(f"{self.shown} has no function {name}: compile the model again") from None

    def check(self, status: int, session: c_void_p) -> None:
        """Raise the error for a status that a function of the library has returned for a session.

        Raises:
            RunError: the status is not OK.
        """
        if status == CANCELLED:
            raise RunCancelled(f"the run of {self.name} was cancelled")
        if status == TIMED_OUT:
            raise RunTimedOut(f"the run of {self.name} took longer than its time limit")
        if status != OK:
            raise RunError(self._reason(status, session))

    def _reason(self, status: int, session: c_void_p | None) -> str:
        if status == BUSY:
            return f"the model {self.name} was running when the process forked: load it again in the child"
        reason = self.dll.nnefc_last_error(session).decode(errors="replace")
        if status == UNSUPPORTED_CPU:
            return f"{self.shown} cannot run here: {reason}; compile the model for this processor"
        return f"{self.shown}: {self.dll.nnefc_status_name(status).decode()}: {reason}"


def _open_library(path: str) -> ctypes.CDLL:
    if sys.platform == "win32":  # Windows has no global namespace of symbols
        return ctypes.CDLL(path)
    # symbols stay local, since all libraries export the same names
    return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)


def _close_library(dll: ctypes.CDLL) -> None:
    if sys.platform == "win32":
        _ctypes.FreeLibrary(dll._handle)
    else:
        _ctypes.dlclose(dll._handle)


def _metadata(description: Any) -> dict[str, str]:
    entries = (description.metadata[i] for i in range(description.metadata_count))
    return {_text(entry.key): _text(entry.value) for entry in entries}


def _text(struct: Any) -> str:
    return ctypes.string_at(struct.data, struct.size).decode(errors="replace")


def _dimensions(description: Any) -> tuple[Dimension, ...]:
    if description.abi_version != DYNAMIC_ABI_VERSION:
        return ()
    structs = (description.dimensions[i] for i in range(description.dimension_count))
    return tuple(Dimension(s.name.decode(), s.least, s.most, s.multiple, s.typical) for s in structs)


def _tensors(structs: Any, count: int, names: Sequence[str] = ()) -> tuple[Tensor, ...]:
    def size(number: int) -> int | str:
        return number if number >= 0 else names[-1 - number] if -number <= len(names) else "?"

    return tuple(
        Tensor(s.name.decode(), TYPES[s.type][0], tuple(size(s.shape[axis]) for axis in range(s.rank)))
        for s in (structs[i] for i in range(count))
    )
