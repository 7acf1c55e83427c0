"""Post-training quantization of networks of any format: `--precision int8`, and `nnefc quantize`."""

__all__ = ["INT8"]

INT8 = "int8"
"""The precision of networks that are quantized while they are compiled."""
