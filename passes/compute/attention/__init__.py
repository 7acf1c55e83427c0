"""TE computations of attention that never materialize the matrix of scores."""
