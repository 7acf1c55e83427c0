"""TIR passes that use the instructions of CPUs."""
