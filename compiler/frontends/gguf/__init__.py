"""GGUF front end: translates language models in the files of llama.cpp to networks."""

from nnefc.frontends.gguf.frontend import load, outline, write

__all__ = ["load", "outline", "write"]
