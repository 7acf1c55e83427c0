"""Sums of products of narrow types (int4, int8, int16, fp16, bf16) by dot-product instructions of targets."""
