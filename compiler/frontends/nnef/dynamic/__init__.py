"""tract's dialect of NNEF, which torch-to-nnef writes too: no static types, extensions, operators of registries."""
