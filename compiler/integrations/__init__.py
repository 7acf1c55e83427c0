"""Implements interfaces of other packages: PyTorch, scikit-learn, onnxruntime, ONNX's backend tests."""
