"""Checks that an ONNX model is valid: scopes, schemas, types, order of nodes."""
