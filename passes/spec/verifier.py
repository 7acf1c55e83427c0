"""Checks programs between two passes against tables of small rules.

A program has one of five forms (:class:`nnefc.ir.attributes.Form`). `KERNEL_RULES` say what a function of TIR may be in
each, `MODULE_RULES` what a module of Relax may be; `compiler/ir/attributes.py` declares the attributes of both:

    network      main: R.nn.conv2d(…), R.call_tir(kernel, …)        kernel: blocks without a schedule
    kernels      main: R.call_tir(kernel, …)                        kernel: blocks without a schedule
    scheduled                                                       kernel: blocks, `nnefc.rule`
    flat                                                            kernel: loops, one-dimensional buffers
    lowered                                                         kernel: loops, parameters are pointers

The verifier runs after each pass where `NNEFC_VERIFY=1` or `--checked` asks for it, and in tests. A new rule is a line
of a table, with a predicate of a few lines that yields what breaks the rule.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import s_tir, tirx

from nnefc.ir.attributes import RULE, Form
from nnefc.passes.manager import PassRun, Phase, Property
from nnefc.passes.spec.kernels import KERNEL_RULES, KernelParts
from nnefc.passes.spec.modules import MODULE_RULES, Module
from nnefc.support.diagnostics import CompileError

__all__ = ["VERIFY", "Broken", "InvalidProgram", "Verifier", "broken_rules", "form_of", "verifier_is_on"]

VERIFY = "NNEFC_VERIFY"
"""An environment variable: `1` runs the verifier after each pass."""


class InvalidProgram(AssertionError):
    """Raised if a pass has made a program that its form does not allow."""


@dataclass(frozen=True)
class Broken:
    """A violation of a rule.

    Attributes:
        kernel: the name of the function of TIR, or `main`.
        rule: the rule's text.
        what: what breaks it.
    """

    kernel: str
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.rule}, but {self.what}"


def verifier_is_on() -> bool:
    """Whether the environment asks for the verifier."""
    return os.environ.get(VERIFY, "") not in ("", "0")


def form_of(run: PassRun) -> Form | None:
    """Returns the form of the program that a pass has made; None for programs without rules.

    These are what is no function or module of TVM, and kernels whose blocks TVM's own passes have begun to lower.
    """
    step, is_kernel = run.step, isinstance(run.after, tirx.PrimFunc)
    properties = step.requires | step.ensures
    match step.phase:
        case Phase.GRAPH if not step.analyzes:
            return Form.NETWORK
        case Phase.LEGALIZE:
            return Form.KERNELS if properties & {Property.KERNELS, Property.FUSED} else Form.NETWORK
        case Phase.SCHEDULE if is_kernel:
            is_scheduled = Property.SCHEDULED in properties or RULE in (run.after.attrs or ())
            return Form.SCHEDULED if is_scheduled else Form.KERNELS
        case Phase.BLOCKS if is_kernel and isinstance(run.after.body, s_tir.SBlockRealize):
            return Form.SCHEDULED
        case Phase.BLOCKS if is_kernel and Property.FLAT in properties:
            return Form.FLAT
        case Phase.FLAT if is_kernel:
            return Form.LOWERED if Property.POINTERS in properties else Form.FLAT
        case Phase.POINTERS if is_kernel:
            return Form.LOWERED
    return None


def broken_rules(program: tvm.IRModule | tirx.PrimFunc, form: Form, name: str = "main") -> Iterator[Broken]:
    """Yields the rules that a program breaks: a kernel called `name`, or a module of Relax with its kernels."""
    if isinstance(program, tirx.PrimFunc):
        kernel = KernelParts(program, form)
        for rule in KERNEL_RULES:
            if form in rule.forms:
                yield from (Broken(name, rule.text, what) for what in rule.broken(kernel))
        return
    module = Module(program, form)
    for module_rule in MODULE_RULES:
        if form in module_rule.forms:
            yield from (Broken(name, module_rule.text, what) for what in module_rule.broken(module))


class Verifier:
    """An observer of passes that checks each program they make; a kernel that stays unchanged is checked once."""

    def __init__(self) -> None:
        self._valid: dict[object, tirx.PrimFunc] = {}  # kernels stay alive, for addresses are in their keys

    def __call__(self, run: PassRun) -> None:
        """Checks the program after a pass.

        Raises:
            InvalidProgram: see :meth:`check`.
            CompileError: the same of a pass of the user's.
        """
        form = form_of(run)
        if form is None:
            return
        try:
            self.check(run.after, form, run.step.name, run.unit)
        except InvalidProgram as error:
            if not run.step.inserted_after:
                raise
            hint = f"it is your pass after '{run.step.inserted_after}': passes that follow need valid programs"
            raise CompileError(str(error), hint=hint) from error

    def check(self, program: tvm.IRModule | tirx.PrimFunc, form: Form, after: str, name: str = "main") -> None:
        """Checks a program that a pass has made.

        Args:
            form: what the program shall be.
            after: the name of the pass.
            name: of the kernel, or of the network or the body of a branch or a loop.

        Raises:
            InvalidProgram: names the pass, the kernel, the rule that is broken, and what breaks it.
        """
        if isinstance(program, tirx.PrimFunc):
            key = form, hash(program.body), hash(program.attrs), *map(hash, program.params)
            if key in self._valid:
                return
        for broken in broken_rules(program, form, name):
            raise InvalidProgram(f"after the pass '{after}', {broken}")
        if isinstance(program, tirx.PrimFunc):
            self._valid[key] = program
            return
        for gv, func in program.functions.items():
            if isinstance(func, tirx.PrimFunc):
                self.check(func, form, after, gv.name_hint)
