"""Winograd, Strassen or direct: chosen by a model of the costs."""
