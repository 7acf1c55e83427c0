"""Chooses between fp16, bfloat16 and float32 arithmetic."""
