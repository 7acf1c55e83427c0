"""Transforms of `torch.func` in captured graphs: `vmap`, `grad`, `jvp` and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch._C import _autograd, _functorch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = ["ends_transforms", "without_transforms"]

_MODULES = ("torch._functorch", "torch._C._functorch")
"""Of the functions that begin and end transforms."""


def without_transforms(graph: torch.fx.GraphModule, values: Sequence[Any]) -> torch.fx.GraphModule:
    """Returns a graph whose transforms are replaced by the operators that they run; one that has none as it is.

    torch.export traces few of them (PyTorch 2.14).

    Args:
        graph: captured by torch.compile.
        values: of its inputs; sizes of tensors stay symbolic.
    """
    targets = (node.target for node in graph.graph.nodes)
    if not any(str(getattr(target, "__module__", "")).startswith(_MODULES) for target in targets):
        return graph
    return make_fx(graph, tracing_mode="symbolic")(*values)


@contextmanager
def ends_transforms() -> Iterator[None]:
    """Ends the transforms that the code inside begins and, because it raises, does not end itself.

    They are a state of the thread, and would be applied to everything that it runs later.
    """
    depth, forward = _functorch.get_dynamic_layer_stack_depth(), torch._C._is_fwd_grad_enabled()
    hooks = _autograd._saved_tensors_hooks_get_disabled_error_message()
    try:
        yield
    except BaseException:
        with suppress(RuntimeError):  # there is none; graphs begin it without a change of Python's counter
            torch._C._exit_dual_level(level=forward_ad._current_level + 1)
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        torch._C._set_fwd_grad_enabled(forward)
        if hooks is None:
            _autograd._saved_tensors_hooks_enable()
        else:
            _autograd._saved_tensors_hooks_disable(hooks)
        raise
