"""The registries of operators that documents of tract's dialect name; importing this fills `REGISTRIES`."""

from nnefc.frontends.nnef.registries import core, images, moving, scanning, spectra, standard, streams, transformers

__all__ = ["core", "images", "moving", "scanning", "spectra", "standard", "streams", "transformers"]
