"""The program of a network: memory plan, entry function, and the kernels that it calls."""
