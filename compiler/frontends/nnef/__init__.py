"""NNEF front end: translates models of the Neural Network Exchange Format, in both dialects, to networks."""

from nnefc.frontends.nnef.flat import FlatGraph, print_flat
from nnefc.frontends.nnef.frontend import document_of, load, load_files
from nnefc.frontends.nnef.outline import outline, outline_of_files

__all__ = ["FlatGraph", "document_of", "load", "load_files", "outline", "outline_of_files", "print_flat"]
