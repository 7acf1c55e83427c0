"""Operators of com.microsoft, onnxruntime's domain."""
