"""The files of an NNEF model: archives, tensor files, quantization, templates."""
