"""The verifier: valid programs pass, and each way of corrupting one is noticed, with pass, kernel and rule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tvm
from tir_programs import function
from tvm import relax, te, tirx
from tvm.ir import PrimType

import nnefc
from nnefc.ir.attributes import (
    CHECKED,
    CONDITIONAL_VALUES,
    CONTROL,
    DOT_ACCUMULATE,
    DYNAMIC_DIMENSIONS,
    ELEMENT_RANGES,
    LET_BOUND_DIMENSIONS,
    LOCAL_RESPONSE,
    MASK,
    PADDING,
    RESIZE,
    RULE,
    SAME_BYTES,
    SIZE_HINT,
    TILED_AXES,
    UPDATES,
    Form,
)
from nnefc.passes import after
from nnefc.passes.spec.kernels import KERNEL_RULES
from nnefc.passes.spec.modules import MODULE_RULES
from nnefc.passes.spec.verifier import VERIFY, InvalidProgram, Verifier, broken_rules
from nnefc.support.diagnostics import CompileError

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.nnef"
N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
TENSOR = relax.TensorType((4, 5), "float32")


def computation(block: Mapping[str, Any] | None = None, dtype: str = "float32") -> tirx.PrimFunc:
    """A kernel without a schedule: twice its operand."""
    x = te.placeholder((4, 5), dtype, "x")
    y = te.compute((4, 5), lambda i, j: x[i, j] + x[i, j], "y", attrs=dict(block or {}))
    return te.create_prim_func([x, y], "int64").without_attr("global_symbol")


def scheduled(**attrs: Any) -> tirx.PrimFunc:
    return computation().with_attr(RULE, "AnyRule").with_attrs(attrs)


def flat(body: str = "y[i] = x[i]", notes: str = "") -> tirx.PrimFunc:
    """A kernel of one loop over buffers of 20 elements."""
    text = f"""x: T.Buffer((20,), "float32"), y: T.Buffer((20,), "float32")
    for i in T.serial(20{notes}):
        {body}
    """
    return function(text).with_attr(RULE, "AnyRule")


def lowered(parameters: str = 'p: T.handle("float32"), n: T.int64', **attrs: Any) -> tirx.PrimFunc:
    """A function of a pointer and a dimension."""
    text = f"""{parameters}
    y = T.decl_buffer((20,), data=p)
    for i in T.serial(20):
        y[i] = T.float32(0)
    """
    func = function(text)
    made = tirx.PrimFunc(func.params, func.body, PrimType("int32"), func.attrs).without_attr("global_symbol")
    return made.with_attrs(attrs)


def module(form: Form = Form.NETWORK, kernel: tirx.PrimFunc | None = None, **changes: Any) -> tvm.IRModule:
    """One with an operator, if it is for a network, then a call of a kernel; `changes` corrupt it."""
    builder, v = relax.BlockBuilder(), relax.Var("v", TENSOR)
    with builder.function("main", [v]):
        with builder.dataflow():
            a = builder.emit(relax.op.nn.relu(v)) if form is Form.NETWORK else v
            name = builder.add_func(kernel or computation(), "kernel")
            operands = changes.get("operands", [a])
            made = relax.call_tir(name, operands, changes.get("result", TENSOR))
            for packed in changes.get("packed", [f"{CONTROL}0"]):
                made = builder.emit(relax.op.call_dps_packed(packed, relax.Tuple([builder.emit(made)]), [TENSOR]))
            out = builder.emit_output(changes.get("last", lambda x: x)(made))
        builder.emit_func_output(out)
    return builder.get()


def with_function() -> tvm.IRModule:
    x = relax.Var("x", TENSOR)
    made = module()
    made["other"] = relax.Function([x], relax.SeqExpr([], x), TENSOR)
    return made


def without_shape() -> tvm.IRModule:
    return module(last=lambda x: relax.Var("u", relax.TensorType(dtype="float32", ndim=2)))


def without_kernel() -> tvm.IRModule:
    return tvm.IRModule({gv: func for gv, func in module().functions.items() if gv.name_hint == "main"})


def with_branch() -> tvm.IRModule:
    v, condition = relax.Var("v", TENSOR), relax.Var("c", relax.TensorType((), "bool"))
    branch = relax.SeqExpr([], v)
    made = relax.Var("made", TENSOR)
    block = relax.BindingBlock([relax.VarBinding(made, relax.If(condition, branch, branch))])
    return tvm.IRModule({"main": relax.Function([v, condition], relax.SeqExpr([block], made), TENSOR)})


VALID = {
    "network": (module(), Form.NETWORK),
    "kernels": (module(Form.KERNELS), Form.KERNELS),
    "computation": (computation({PADDING: 0}).with_attr(RESIZE, [2, 1]), Form.NETWORK),
    "view": (computation().with_attr(SAME_BYTES, True), Form.KERNELS),
    "scheduled": (scheduled(), Form.SCHEDULED),
    "dynamic": (
        scheduled(**{DYNAMIC_DIMENSIONS: [N], LET_BOUND_DIMENSIONS: [[M, N + 1]], TILED_AXES: [[M, N, 14, 7, 1]]}),
        Form.SCHEDULED,
    ),
    "flat": (flat(notes=f", annotations={{'{DOT_ACCUMULATE}': True}}"), Form.FLAT),
    "lowered": (lowered(**{CHECKED: True, ELEMENT_RANGES: {"0": [0, 9]}, CONDITIONAL_VALUES: False}), Form.LOWERED),
    "exported": (lowered(global_symbol="nnefc_kernel_f", calling_conv=1), Form.LOWERED),
}

DECLARED = "every attribute is declared for where it is"
TYPE = "the value of an attribute has the declared type"
FORM = "an attribute is in programs of the declared forms alone"
BOUND = "every variable is a parameter, a dimension, or bound before its use"
CALLS = "calls are of kernels in the module, or of bodies of branches and loops"
TYPES = "operands and results are of the types of the kernel's parameters"

CORRUPTED = {
    "a key that is not declared": (computation().with_attr("nnefc.unheard_of", 1), Form.NETWORK, DECLARED),
    "an undeclared key": (scheduled(speed=9), Form.SCHEDULED, DECLARED),
    "a block's key on a function": (scheduled(**{PADDING: 0}), Form.SCHEDULED, DECLARED),
    "a function's key on a block": (computation({RULE: "AnyRule"}), Form.NETWORK, DECLARED),
    "a loop's key that is not declared": (flat(notes=", annotations={'nnefc.fast': True}"), Form.FLAT, DECLARED),
    "text for a number": (computation().with_attr(UPDATES, "2"), Form.NETWORK, TYPE),
    "a number for text": (scheduled(**{RULE: 3}), Form.SCHEDULED, TYPE),
    "false for a flag": (computation().with_attr(SAME_BYTES, False), Form.KERNELS, TYPE),
    "text for numbers": (computation().with_attr(LOCAL_RESPONSE, ["1", "2"]), Form.NETWORK, TYPE),
    "pairs of no variable": (scheduled(**{LET_BOUND_DIMENSIONS: [[1, 2]]}), Form.SCHEDULED, TYPE),
    "half a range": (lowered(**{CHECKED: True, ELEMENT_RANGES: {"0": [1]}}), Form.LOWERED, TYPE),
    "text for a trip count": (flat(notes=f", annotations={{'{SIZE_HINT}': 'few'}}"), Form.FLAT, TYPE),
    "a view with a schedule": (scheduled(**{SAME_BYTES: True}), Form.SCHEDULED, FORM),
    "a mask before vectors": (
        function(
            f'x: T.Buffer((4,), "int8")\n    with T.attr(T.int64(0), "{MASK}", T.int64(3)):\n        x[0] = T.int8(0)'
        ),
        Form.SCHEDULED,
        FORM,
    ),
    "an instruction's loop after its pass": (
        tirx.PrimFunc([], flat("T.evaluate(0)", f", annotations={{'{DOT_ACCUMULATE}': True}}").body, PrimType("int32")),
        Form.LOWERED,
        FORM,
    ),
    "a free variable": (
        tirx.PrimFunc([], tirx.Evaluate(N + 1), PrimType("int32")),
        Form.LOWERED,
        BOUND,
    ),
    "a loop's variable behind the loop": (
        tirx.PrimFunc(
            flat().params, tirx.SeqStmt([flat().body, tirx.Evaluate(flat().body.loop_var)]), attrs=flat().attrs
        ),
        Form.FLAT,
        BOUND,
    ),
    "a buffer of no one": (tirx.PrimFunc([], flat().body, attrs=flat().attrs), Form.FLAT, BOUND),
    "a pointer for a buffer": (
        tirx.PrimFunc(lowered().params, computation().body),
        Form.NETWORK,
        "parameters are buffers and dimensions",
    ),
    "loops for a block": (flat(), Form.SCHEDULED, "the body is a block"),
    "no rule": (computation(), Form.SCHEDULED, "a scheduled kernel names the rule that scheduled it"),
    "a block in loops": (scheduled(), Form.FLAT, "a flat kernel has no blocks"),
    "two indices": (
        function('x: T.Buffer((4, 5), "float32")\n    for i in range(4):\n        x[i, 0] = x[i, 1]'),
        Form.FLAT,
        "buffers of a flat kernel have one dimension",
    ),
    "a thread of a GPU": (
        function(
            'x: T.Buffer((4,), "int8")\n    for i in T.thread_binding(4, "threadIdx.x"):\n        x[i] = T.int8(0)'
        ),
        Form.FLAT,
        "no loop of a CPU's kernel is bound to a thread of a GPU",
    ),
    "a buffer for a pointer": (
        tirx.PrimFunc(flat().params, flat().body, PrimType("int32")),
        Form.LOWERED,
        "parameters are pointers, then dimensions",
    ),
    "a pointer behind a dimension": (
        lowered('n: T.int64, p: T.handle("float32")'),
        Form.LOWERED,
        "parameters are pointers, then dimensions",
    ),
    "no status": (tirx.PrimFunc(lowered().params, lowered().body), Form.LOWERED, "a kernel returns a status"),
    "a symbol that C cannot call": (
        lowered(global_symbol="f"),
        Form.LOWERED,
        "a function with a symbol is called as C functions are",
    ),
    "another function of Relax": (with_function(), Form.NETWORK, "all functions but main are kernels"),
    "a tensor that nothing makes": (
        module(operands=[relax.Var("u", TENSOR)]),
        Form.NETWORK,
        "every tensor of main is a parameter or bound before its use",
    ),
    "a branch": (with_branch(), Form.NETWORK, "main has no branches and no functions of its own"),
    "no shape": (without_shape(), Form.NETWORK, "every tensor has a shape and an element type"),
    "no kernel": (without_kernel(), Form.NETWORK, CALLS),
    "a function from elsewhere": (module(packed=["elsewhere"]), Form.NETWORK, CALLS),
    "an operand too many": (module(operands=[relax.Var("a", TENSOR), relax.Var("b", TENSOR)]), Form.NETWORK, TYPES),
    "another element type": (module(result=relax.TensorType((4, 5), "int8")), Form.NETWORK, TYPES),
    "another rank": (module(result=relax.TensorType((20,), "float32")), Form.NETWORK, TYPES),
    "an operator that is left": (module(), Form.KERNELS, "after legalization no operator of Relax is left"),
}


@pytest.mark.parametrize("name", VALID)
def test_valid_programs_break_no_rule(name: str) -> None:
    program, form = VALID[name]
    assert list(map(str, broken_rules(program, form))) == []
    Verifier().check(program, form, "any")


@pytest.mark.parametrize("name", CORRUPTED)
def test_a_corrupted_program_breaks_a_rule(name: str) -> None:
    program, form, rule = CORRUPTED[name]
    assert rule in [broken.rule for broken in broken_rules(program, form)]
    with pytest.raises(InvalidProgram):
        Verifier().check(program, form, "any")


def test_every_rule_has_a_program_that_breaks_it() -> None:
    assert {rule for _, _, rule in CORRUPTED.values()} == {rule.text for rule in (*KERNEL_RULES, *MODULE_RULES)}


def test_a_broken_rule_is_an_error_that_names_the_pass_the_kernel_and_the_rule() -> None:
    kernel = computation().with_attr(UPDATES, "2")
    with pytest.raises(InvalidProgram) as error:
        Verifier().check(module(kernel=kernel), Form.NETWORK, "fold constants")
    what = f"'{UPDATES}' is '2' where its type is: integer"
    assert str(error.value) == f"after the pass 'fold constants', kernel: {TYPE}, but {what}"


def test_copies_of_a_loop_may_share_its_variable() -> None:
    func = flat()
    twice = tirx.PrimFunc(func.params, tirx.SeqStmt([func.body, func.body]), attrs=func.attrs)
    assert list(broken_rules(twice, Form.FLAT)) == []


def with_unheard_of(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return func.with_attr("nnefc.unheard_of", 1)


@pytest.mark.parametrize("name", ["schedule", "opaque constants", "align stack frames", "loop pointers"])
def test_a_pass_that_makes_an_invalid_kernel_is_named(name: str) -> None:
    rule = r"fused_\w+: every attribute is declared for where it is, but a function has 'nnefc.unheard_of'"
    with pytest.raises(CompileError, match=rf"after the pass 'corrupt', {rule}") as error:
        nnefc.compile(DIGITS, passes=[after(name, with_unheard_of, called="corrupt")])
    assert error.value.hint is not None and error.value.hint.startswith(f"it is your pass after '{name}'")


def test_checked_libraries_are_compiled_with_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERIFY, "0")
    with pytest.raises(CompileError, match="after the pass 'corrupt'"):
        nnefc.compile(DIGITS, checked=True, passes=[after("schedule", with_unheard_of, called="corrupt")])


def test_a_pass_that_makes_an_invalid_network_is_named() -> None:
    def corrupt(module: tvm.IRModule) -> tvm.IRModule:
        functions = module.functions.items()
        return tvm.IRModule({gv: f if gv.name_hint == "main" else f.with_attr(RULE, "any") for gv, f in functions})

    with pytest.raises(CompileError, match=rf"after the pass 'corrupt', \w+: {FORM}, but '{RULE}' is in a program"):
        nnefc.compile(DIGITS, passes=[after("fuse", corrupt)])


def test_programs_are_not_verified_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERIFY, "0")
    nnefc.compile(DIGITS, passes=[after("loop pointers", with_unheard_of)])
