"""Machine descriptions of CPUs."""
