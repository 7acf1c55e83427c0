"""What becomes of each operation when layouts are assigned: one family a file, each with a table of rules."""
