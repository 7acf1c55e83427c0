"""Chooses how a folder's quantized weights are read, by `quantization_config` of its config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.huggingface.quantized.awq import joined_awq
from nnefc.frontends.huggingface.quantized.bitsandbytes import joined_bitsandbytes
from nnefc.frontends.huggingface.quantized.compressed_tensors import joined_compressed
from nnefc.frontends.huggingface.quantized.fp8 import joined_fp8
from nnefc.frontends.huggingface.quantized.gptq import joined_gptq
from nnefc.frontends.huggingface.quantized.modules import Tensors
from nnefc.frontends.huggingface.quantized.mxfp4 import joined_mxfp4
from nnefc.frontends.huggingface.safetensors import read_json
from nnefc.support.diagnostics import CompileError

__all__ = ["METHODS", "OLDER_FILES", "dequantizable"]

METHODS: dict[str, Callable[[Tensors, Mapping[str, Any], Path], Tensors]] = {
    "gptq": joined_gptq,
    "awq": joined_awq,
    "bitsandbytes": joined_bitsandbytes,
    "compressed-tensors": joined_compressed,
    "mxfp4": joined_mxfp4,
    "fp8": joined_fp8,
    "fbgemm_fp8": joined_fp8,
}
"""Readers by `quant_method`."""


OLDER_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Files that say the same in older folders, and of which method they are."""


def dequantizable(tensors: Tensors, config: Mapping[str, Any], source: Path) -> Tensors:
    """Returns the tensors of a folder, each quantized matrix as one that decodes its elements when they are asked for.

    Raises:
        CompileError: the weights are quantized in a way that is not known, or tensors do not fit each other.
    """
    given = config.get("quantization_config")
    if given is None:
        given = config.get("compression_config")
    if given is None and any(label.endswith(".qweight") for label in tensors):
        given = _older(source)
    if given is None:
        return tensors
    method = given.get("quant_method") if isinstance(given, Mapping) else None
    if not isinstance(method, str) or method not in METHODS:
        raise CompileError(
            f"'{source / 'config.json'}': the key 'quantization_config.quant_method' is '{shown(method)}', which is "
            "not supported",
            hint=f"supported are {', '.join(METHODS)}; or take the model as GGUF",
        )
    return METHODS[method](tensors, given, source)


def _older(source: Path) -> dict[str, Any] | None:
    """Returns what a file of an older folder says; None without one."""
    for name, method in OLDER_FILES.items():
        if (source / name).is_file():
            return read_json(source / name) | {"quant_method": method}
    return None
