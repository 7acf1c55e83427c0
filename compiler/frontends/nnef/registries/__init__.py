"""The registries of operators that documents of tract's dialect name; importing this fills `REGISTRIES`."""

from nnefc.frontends.nnef.registries import core, moving, scanning, standard, transformers

__all__ = ["core", "moving", "scanning", "standard", "transformers"]
