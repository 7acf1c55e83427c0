"""What every front end returns: a Relax function and the names that users know its tensors by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm

__all__ = ["Network", "Quantized", "State"]


@dataclass(frozen=True)
class State:
    """A tensor kept between runs of a session. `initial` is its value at the start and after a reset."""

    name: str
    initial: np.ndarray


@dataclass(frozen=True)
class Quantized:
    """How a model says that a tensor is quantized: the format's own name of the method and its parameters."""

    method: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Network:
    """A typed network with all shapes known, in Relax.

    `module["main"]` is one Relax function in a single dataflow block. Its parameters are the inputs, in the order of
    `inputs`, then the states, in the order of `states`. It returns a tuple (always a tuple): the outputs, in the order
    of `outputs`, then the states' new values, in the order of `states`. Trained values are `tvm.ir.GenericConst`.
    `quantization` is what the model says about tensors by name; the values in the module are reals all the same.
    `variables` are the model's names of its trained values; passes change the values, so that the names alone survive.
    `files` are the names of files that the model refers to, relative to its folder.
    """

    name: str
    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[State, ...] = ()
    quantization: Mapping[str, Quantized] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
