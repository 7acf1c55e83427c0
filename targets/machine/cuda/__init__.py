"""Machine descriptions of NVIDIA GPUs."""
