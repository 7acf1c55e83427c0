"""Decoders and encoders of language models: one description and one builder for all formats of their files."""

from nnefc.frontends.decoder.architectures import (
    ARCHITECTURES,
    ENCODERS,
    Architecture,
    Hyperparameters,
    architecture_named,
    described,
)
from nnefc.frontends.decoder.description import Dense, Encoding
from nnefc.frontends.decoder.network import BuiltModel, Session, built
from nnefc.frontends.decoder.weights import StoredTensor, Weights

__all__ = [
    "ARCHITECTURES",
    "ENCODERS",
    "Architecture",
    "BuiltModel",
    "Dense",
    "Encoding",
    "Hyperparameters",
    "Session",
    "StoredTensor",
    "Weights",
    "architecture_named",
    "built",
    "described",
]
