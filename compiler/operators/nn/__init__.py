"""Operators of neural networks: layers, attention, quantization."""
