"""The registries of operators that documents of tract's dialect name; importing this fills `REGISTRIES`."""

from nnefc.frontends.nnef.registries import (
    caches,
    cells,
    core,
    experts,
    images,
    integers,
    models,
    moving,
    pulses,
    recurrences,
    scanning,
    selecting,
    spectra,
    standard,
    streams,
    transformers,
)

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
    "scanning",
    "selecting",
    "spectra",
    "standard",
    "streams",
    "transformers",
]
