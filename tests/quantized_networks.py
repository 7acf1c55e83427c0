"""What tests ask of quantized networks."""

from __future__ import annotations

from nnefc.backends import backend_of
from nnefc.network import Network
from nnefc.passes.graph.rewriter import is_call
from nnefc.passes.pipeline import simplifications
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["integer_layers"]

HOST = parse_target("llvm")


def integer_layers(network: Network) -> int:
    """How many convolutions and products are summed up in integers."""
    module = network.module
    for name, transform in simplifications(backend_of(HOST).graph_passes(strict=False, memory_budget=1)):
        module = transform(module)
        if name == "compute in integers":
            break
    calls = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    return sum(is_call(call, "nn.conv2d", "matmul") and str(call.ty.dtype) == "int32" for call in calls)
