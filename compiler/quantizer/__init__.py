"""Post-training quantization of networks of any format, for `--precision int8` and `nnefc quantize`."""
