"""Machine descriptions of GPUs, whatever makes their code."""
