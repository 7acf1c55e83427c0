"""Post-training quantization of networks of any format: `--precision int8`, and `nnefc quantize`."""
