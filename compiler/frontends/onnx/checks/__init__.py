"""Validity of an ONNX model: scopes, schemas, types, order of nodes."""
