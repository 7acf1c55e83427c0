"""Compiles scikit-learn estimators: the public name of :mod:`nnefc.integrations.sklearn`."""

from nnefc.integrations.sklearn import CompiledEstimator, compile

__all__ = ["CompiledEstimator", "compile"]
