"""Products of a matrix and few vectors, which are bound by fetching the matrix once."""
