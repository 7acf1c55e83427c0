"""Compiles PyTorch modules: the public name of :mod:`nnefc.integrations.torch`."""

from nnefc.integrations.torch import CompiledModule, backend, compile

__all__ = ["CompiledModule", "backend", "compile"]
