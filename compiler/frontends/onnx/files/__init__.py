"""Reads ONNX files: protobuf, external data, immutable model values."""
