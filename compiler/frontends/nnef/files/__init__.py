"""Reads the files of an NNEF model: archives, tensor files, quantization files, templates."""
