"""scikit-learn estimators, compiled: the public name of :mod:`nnefc.integrations.sklearn`."""

from nnefc.integrations.sklearn import CompiledEstimator, compile

__all__ = ["CompiledEstimator", "compile"]
