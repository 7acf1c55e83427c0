"""Operator registries of tract's dialect. Importing this package fills `REGISTRIES`."""

from nnefc.frontends.nnef.registries import (
    caches,
    cells,
    core,
    experts,
    images,
    integers,
    models,
    pulses,
    recurrences,
    recurrent_layers,
    sequences,
    spectra,
    standard,
    streams,
    transformers,
)
from nnefc.frontends.nnef.registries import data_dependent as selecting
from nnefc.frontends.nnef.registries import data_movement as moving
from nnefc.frontends.nnef.registries import scan as scanning

__all__ = [
    "caches",
    "cells",
    "core",
    "experts",
    "images",
    "integers",
    "models",
    "moving",
    "pulses",
    "recurrences",
    "recurrent_layers",
    "scanning",
    "selecting",
    "sequences",
    "spectra",
    "standard",
    "streams",
    "transformers",
]
