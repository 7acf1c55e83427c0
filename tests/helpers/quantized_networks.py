"""What tests ask of quantized networks."""

from __future__ import annotations

from pass_runs import module_after

from nnefc.backends import backend_of
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network
from nnefc.passes.graph.rewriter import is_call
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["integer_layers"]

HOST = parse_target("llvm")


def integer_layers(network: Network) -> int:
    """How many convolutions and products are summed up in integers."""
    module = module_after(network, backend_of(HOST), "compute in integers")
    calls = [binding.value for binding in bindings_of(module["main"])]
    return sum(is_call(call, "nn.conv2d", "matmul") and str(call.ty.dtype) == "int32" for call in calls)
