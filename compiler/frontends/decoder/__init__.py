"""Decoders of language models: one description and one builder for all formats of their files."""

from nnefc.frontends.decoder.architectures import ARCHITECTURES, Architecture, Hyperparameters, described
from nnefc.frontends.decoder.network import BuiltModel, Session, built
from nnefc.frontends.decoder.weights import StoredTensor, Weights

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "BuiltModel",
    "Hyperparameters",
    "Session",
    "StoredTensor",
    "Weights",
    "built",
    "described",
]
