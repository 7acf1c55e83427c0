"""Tensors of onnxruntime's interface."""
