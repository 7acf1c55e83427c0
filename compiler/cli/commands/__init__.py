"""Commands of `nnefc`, a module for each."""
