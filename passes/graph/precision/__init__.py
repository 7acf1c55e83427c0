"""Computations in fp16, bfloat16 and float32."""
