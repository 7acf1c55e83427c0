"""Quantized weights of folders: several tensors of a matrix become one."""

from nnefc.frontends.huggingface.quantized.methods import METHODS, OLDER_FILES, dequantizable

__all__ = ["METHODS", "OLDER_FILES", "dequantizable"]
