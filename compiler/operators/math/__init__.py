"""Element-wise functions, products, reductions, spectra, random numbers."""
