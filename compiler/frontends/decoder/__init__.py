"""Decoders and encoders of language models: one description and one builder for all formats of their files."""

from nnefc.frontends.decoder.architectures import (
    ARCHITECTURES,
    ENCODERS,
    Architecture,
    architecture_named,
    described,
)
from nnefc.frontends.decoder.description import AlternatingUpdates, Dense, Encoding, Norm, StateSpace
from nnefc.frontends.decoder.hyperparameters import Hyperparameters, LatentSizes, Routing
from nnefc.frontends.decoder.network import BuiltModel, Session, built
from nnefc.frontends.decoder.weights import StoredTensor, Weights

__all__ = [
    "ARCHITECTURES",
    "ENCODERS",
    "AlternatingUpdates",
    "Architecture",
    "BuiltModel",
    "Dense",
    "Encoding",
    "Hyperparameters",
    "LatentSizes",
    "Norm",
    "Routing",
    "Session",
    "StateSpace",
    "StoredTensor",
    "Weights",
    "architecture_named",
    "built",
    "described",
]
