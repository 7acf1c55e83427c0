"""Declares the rules of kernels (functions of TIR) in each form: a table of rules, each with a small predicate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import PointerType, PrimType
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import ATTRIBUTES, DYNAMIC_DIMENSIONS, LET_BOUND_DIMENSIONS, RULE, TILED_AXES, Form, Site
from nnefc.passes.spec.rules import ALL, BLOCKS, GRAPH, LOOPS, LOWERED, SCHEDULED, Rule
from nnefc.passes.spec.scopes import unbound_variables
from nnefc.passes.spec.values import IS, is_scalar
from nnefc.symbolic.dims import dynamic_variables

__all__ = ["KERNEL_RULES", "KernelParts"]

_OF_TVM = {"global_symbol", "tirx.noalias", "op_pattern", "calling_conv", "target", "s_tir"}
"""Attributes of functions that are TVM's own."""


@dataclass(frozen=True)
class KernelParts:
    """The parts of a TIR function that rules read."""

    func: tirx.PrimFunc
    form: Form

    @cached_property
    def nodes(self) -> Sequence[Any]:
        """Blocks, loops, attributes' statements and accesses in the body, in order."""
        found: list[Any] = []
        kinds = (
            s_tir.SBlock,
            tirx.For,
            tirx.AttrStmt,
            *((TensorLoad, tirx.BufferStore) if self.form in LOOPS else ()),
        )
        tvm_ffi.structural_walk(self.func.body, (kinds, found.append))
        return found

    @cached_property
    def attributes(self) -> Sequence[tuple[Site, str, Any]]:
        """All attributes and annotations: their sites, keys and values."""
        found = [(Site.FUNCTION, str(key), value) for key, value in (self.func.attrs or {}).items()]
        for node in self.nodes:
            match node:
                case s_tir.SBlock():
                    found += [(Site.BLOCK, str(key), value) for key, value in node.annotations.items()]
                case tirx.For():
                    found += [(Site.LOOP, str(key), value) for key, value in node.annotations.items()]
                case tirx.AttrStmt():
                    found.append((Site.STATEMENT, str(node.attr_key), node.value))
        return found

    def attribute(self, key: str) -> Any:
        """Returns the value of an attribute of the function; None where there is none."""
        return self.func.attrs.get(key) if self.func.attrs else None


def _undeclared(kernel: KernelParts) -> Iterator[str]:
    for site, key, _ in kernel.attributes:
        declared = ATTRIBUTES.get(key)
        if declared is not None and declared.site != site:
            yield f"'{key}' of a {declared.site.value} is on a {site.value}"
        elif declared is None and (key.startswith("nnefc.") or (site is Site.FUNCTION and key not in _OF_TVM)):
            yield f"a {site.value} has '{key}'"


def _of_another_type(kernel: KernelParts) -> Iterator[str]:
    for _, key, value in kernel.attributes:
        declared = ATTRIBUTES.get(key)
        if declared is not None and not IS[declared.value](value):
            yield f"'{key}' is {value!r:.80} where its type is: {declared.value.value}"


def _of_another_form(kernel: KernelParts) -> Iterator[str]:
    for _, key, _ in kernel.attributes:
        declared = ATTRIBUTES.get(key)
        if declared is not None and kernel.form not in declared.forms:
            yield f"'{key}' is in a program of the form {kernel.form.value}"


def _free(kernel: KernelParts) -> Iterator[str]:
    func, known = kernel.func, {*kernel.func.params}
    if kernel.form is not Form.LOWERED:
        known |= {*_dimensions(kernel), *(var for var, _ in kernel.attribute(LET_BOUND_DIMENSIONS) or ())}
        known |= {var for end, count, *_ in kernel.attribute(TILED_AXES) or () for var in (end, count)}
        shapes = (param.shape for param in func.params if isinstance(param.ty, tirx.BufferType))
        known |= {size for shape in shapes for size in shape if isinstance(size, tirx.Var)}
    yield from (f"'{var.name}' is not" for var in unbound_variables(func.body, known))


def _dimensions(kernel: KernelParts) -> Sequence[tirx.Var]:
    """Returns the dynamic dimensions that the kernel may use; graph passes list them when they are done with the
    network's.
    """
    own = kernel.attribute(DYNAMIC_DIMENSIONS) or ()
    return [*own, *dynamic_variables()] if kernel.form in GRAPH else [*own]


def _not_a_buffer(kernel: KernelParts) -> Iterator[str]:
    for param in kernel.func.params:
        if not isinstance(param.ty, tirx.BufferType) and not is_scalar(param):
            yield f"the parameter '{param.name}' is neither a buffer nor an integer"


def _not_a_pointer(kernel: KernelParts) -> Iterator[str]:
    dimensions = False
    for param in kernel.func.params:
        if isinstance(param.ty, PointerType):
            if dimensions:
                yield f"the pointer '{param.name}' follows a dimension"
        elif is_scalar(param):
            dimensions = True
        else:
            yield f"the parameter '{param.name}' is a {type(param.ty).__name__}"


def _not_in_a_block(kernel: KernelParts) -> Iterator[str]:
    if not isinstance(kernel.func.body, s_tir.SBlockRealize):
        yield f"the body is a {type(kernel.func.body).__name__}"


def _without_rule(kernel: KernelParts) -> Iterator[str]:
    if kernel.attribute(RULE) is None:
        yield "there is none"


def _blocks(kernel: KernelParts) -> Iterator[str]:
    yield from (f"there is '{node.name_hint}'" for node in kernel.nodes if isinstance(node, s_tir.SBlock))


def _of_several_indices(kernel: KernelParts) -> Iterator[str]:
    for node in kernel.nodes:
        if isinstance(node, TensorLoad | tirx.BufferStore) and len(node.indices) != 1:
            tensor = node.source if isinstance(node, TensorLoad) else node.buffer
            yield f"'{tensor.name}' is accessed by {len(node.indices)} indices"


def _bound_to_threads(kernel: KernelParts) -> Iterator[str]:
    for node in kernel.nodes:
        if isinstance(node, tirx.For) and node.kind == tirx.ForKind.THREAD_BINDING:
            yield f"the loop over '{node.loop_var.name}' is"


def _without_status(kernel: KernelParts) -> Iterator[str]:
    if kernel.func.ret_type != PrimType("int32"):
        yield f"it returns {kernel.func.ret_type}"


def _of_another_convention(kernel: KernelParts) -> Iterator[str]:
    if kernel.attribute("global_symbol") is not None and kernel.attribute("calling_conv") != 1:
        yield f"the calling convention of '{kernel.attribute('global_symbol')}' is {kernel.attribute('calling_conv')}"


KERNEL_RULES: Sequence[Rule[KernelParts]] = (
    Rule("every attribute is declared for where it is", ALL, _undeclared),
    Rule("the value of an attribute has the declared type", ALL, _of_another_type),
    Rule("an attribute is in programs of the declared forms alone", ALL, _of_another_form),
    Rule("every variable is a parameter, a dimension, or bound before its use", ALL, _free),
    Rule("parameters are buffers and dimensions", BLOCKS, _not_a_buffer),
    Rule("the body is a block", BLOCKS, _not_in_a_block),
    Rule("a scheduled kernel names the rule that scheduled it", SCHEDULED, _without_rule),
    Rule("a flat kernel has no blocks", LOOPS, _blocks),
    Rule("buffers of a flat kernel have one dimension", LOOPS, _of_several_indices),
    Rule("no loop of a CPU's kernel is bound to a thread of a GPU", LOOPS, _bound_to_threads),
    Rule("parameters are pointers, then dimensions", LOWERED, _not_a_pointer),
    Rule("a kernel returns a status", LOWERED, _without_status),
    Rule("a function with a symbol is called as C functions are", LOWERED, _of_another_convention),
)
