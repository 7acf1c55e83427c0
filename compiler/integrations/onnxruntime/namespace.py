"""The modules of onnxruntime, by their names, as this package stands for them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import nnefc.integrations.onnxruntime as package

from . import devices, enums, errors, inference_session, providers, refused, session
from .environment import VERSION
from .options import SessionOptions
from .tensors import raw_values, sparse
from .tensors.type_helper import TypeHelper
from .tools import TOOLS, refused_name, tool_module

__all__ = ["modules", "public_names"]

_PRIVATE = {
    "__author__": "nnefc",
    "__version__": VERSION,
    "cuda_version": "",
    "import_capi_exception": None,
    "package_name": "onnxruntime",
    "version": VERSION,
}
"""Names of the package besides its classes and functions."""


_QUANTIZATION = (
    "pack_fp4_weights_for_cuda_moe_gemm",
    *(f"quantize_matmul_{kind}" for kind in ("2bits", "4bits", "8bits", "bnb4")),
    *(f"quantize_qdq_matmul_{kind}" for kind in ("2bits", "4bits")),
)
_KERNELS = (
    "SessionObjectInitializer",
    "get_all_operator_schema",
    "get_all_opkernel_def",
    "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes",
    "get_hardware_device_ep_incompatibility_details",
    "get_model_compatibility_for_ep_devices",
    "get_registered_ep_kernel_defs",
    "get_session_initializer",
    "opkernel",
    "schemadef",
)
"""Names of the module of C++ classes that are about onnxruntime's own kernels, and are refused when they are called."""


def public_names() -> dict[str, Any]:
    """Returns what `onnxruntime` has at its top."""
    return {name: getattr(package, name) for name in package.__all__} | _PRIVATE


def modules() -> dict[str, ModuleType]:
    """Returns new modules by the names that programs import: `onnxruntime`, its `capi`, and tools that are refused."""
    state = _state()
    collection = {
        name: getattr(package, name)
        for name in ("IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "SparseTensor", "copy_tensors")
    }
    collection |= {
        "AdapterFormat": refused.AdapterFormat,
        "ModelCompiler": refused.ModelCompiler,
        "OrtDeviceVendorId": enums.OrtDeviceVendorId,
        "Session": session.Session,
        "check_and_normalize_provider_args": providers.check_and_normalize_provider_args,
    }
    made = {
        "onnxruntime": _module("onnxruntime", public_names()),
        "onnxruntime.capi": _module("onnxruntime.capi", {}),
        "onnxruntime.capi._ld_preload": _module("onnxruntime.capi._ld_preload", {}),
        "onnxruntime.capi._pybind_state": _module("onnxruntime.capi._pybind_state", state),
        "onnxruntime.capi.build_and_package_info": _module(
            "onnxruntime.capi.build_and_package_info", {"__version__": VERSION, "package_name": "onnxruntime"}
        ),
        "onnxruntime.capi.onnxruntime_inference_collection": _module(
            "onnxruntime.capi.onnxruntime_inference_collection", collection
        ),
        "onnxruntime.capi.onnxruntime_pybind11_state": _module("onnxruntime.capi.onnxruntime_pybind11_state", state),
        "onnxruntime.capi.onnxruntime_validation": _module(
            "onnxruntime.capi.onnxruntime_validation",
            {
                "check_distro_info": lambda: None,
                "check_training_module": lambda: (False, "onnxruntime", VERSION, ""),
                "get_package_name_and_version_info": lambda: ("onnxruntime", VERSION, ""),
            },
        ),
    }
    made |= {name: tool_module(name) for name in TOOLS}
    helper = "onnxruntime.transformers.io_binding_helper"
    made[helper] = tool_module(helper)
    made[helper].__dict__["TypeHelper"] = TypeHelper
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    made["onnxruntime"].__dict__["onnxruntime_validation"] = made["onnxruntime.capi.onnxruntime_validation"]
    return made


def _state() -> dict[str, Any]:
    """Returns the names of the module of C++ classes."""
    names = public_names()
    names |= {kind.__name__: kind for kind in errors.CODES}
    names |= {name: getattr(enums, name) for name in enums.__all__ if name != "OrtDeviceVendorId"}
    names |= {
        "InferenceSession": inference_session.InferenceSession,
        "OrtDevice": devices.RawOrtDevice,
        "OrtValue": raw_values.RawOrtValue,
        "OrtValueVector": raw_values.OrtValueVector,
        "SparseBlockSparseView": sparse.SparseBlockSparseView,
        "SparseCooView": sparse.SparseCooView,
        "SparseCsrView": sparse.SparseCsrView,
        "SparseTensor": sparse.RawSparseTensor,
        "get_default_session_options": SessionOptions,
        "get_hardware_devices": lambda: [each.device for each in devices.get_ep_devices()],
        "kNextPowerOfTwo": enums.ArenaExtendStrategy.kNextPowerOfTwo,
        "kSameAsRequested": enums.ArenaExtendStrategy.kSameAsRequested,
    }
    names |= {name: refused_name(f"onnxruntime.quantization.{name}") for name in _QUANTIZATION}
    names |= {name: refused_name(f"onnxruntime.tools.{name}") for name in _KERNELS}
    hidden = ("IOBinding", "OrtDeviceVendorId", "preload_dlls", "print_debug_info", *_PRIVATE)
    return {name: value for name, value in names.items() if name not in hidden}


def _module(name: str, names: dict[str, Any]) -> ModuleType:
    made = ModuleType(name, "Stands for the module of onnxruntime.")
    made.__dict__.update(names)
    made.__file__ = package.__file__
    if name.count(".") < 2 and name != "onnxruntime.backend":
        made.__path__ = []
    return made
