"""TIR passes of NVIDIA GPUs."""
