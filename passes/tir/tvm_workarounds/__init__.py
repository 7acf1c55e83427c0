"""Workarounds for behaviour of TVM and LLVM: one a file, each with a test that reproduces it."""
