"""Machine descriptions: what the compiler knows of processors, GPUs and operating systems."""
