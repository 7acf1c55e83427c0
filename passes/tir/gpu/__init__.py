"""TIR passes of all GPUs."""
