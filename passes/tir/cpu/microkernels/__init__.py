"""Inner loops in assembler."""
