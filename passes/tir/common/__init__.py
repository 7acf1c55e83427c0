"""TIR passes of all targets."""
