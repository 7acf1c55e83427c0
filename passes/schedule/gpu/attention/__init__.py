"""Attention in one launch: scores stay in registers, keys and values pass through shared memory."""
