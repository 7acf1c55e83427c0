"""TFLite front end: translates the flatbuffer files of LiteRT (TensorFlow Lite) to networks."""

from __future__ import annotations

from nnefc.frontends.tflite.frontend import load
from nnefc.frontends.tflite.outline import outline

__all__ = ["load", "outline"]
