"""Code generation, by kind of machine."""
