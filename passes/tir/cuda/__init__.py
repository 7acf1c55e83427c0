"""TIR passes of GPUs."""
