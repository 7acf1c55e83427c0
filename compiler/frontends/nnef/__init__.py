"""NNEF front end: translates models of the Neural Network Exchange Format, in both dialects, to networks."""

from nnefc.frontends.nnef.documentation import operations_table
from nnefc.frontends.nnef.flat import FlatGraph, print_flat
from nnefc.frontends.nnef.frontend import document_of, load
from nnefc.frontends.nnef.outline import outline

__all__ = ["FlatGraph", "document_of", "load", "operations_table", "outline", "print_flat"]
