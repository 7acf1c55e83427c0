"""ONNX files: protobuf, external data, frozen values."""
