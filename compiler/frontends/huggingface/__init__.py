"""Hugging Face front end: translates folders of language models, config.json and safetensors, to networks."""

from nnefc.frontends.huggingface.frontend import load, outline, write

__all__ = ["load", "outline", "write"]
