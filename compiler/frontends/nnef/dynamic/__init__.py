"""Reads tract's dialect of NNEF, also written by torch-to-nnef: no static types, extensions, operator registries."""
