"""Options are checked when they are made, documented once, and known to type checkers and editors by their names."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnefc
from nnefc.driver import option_keywords
from nnefc.driver.option_fields import (
    GROUPS,
    documentation_of,
    flag_of,
    given_values,
    help_of,
    option_fields,
    python_help,
)
from nnefc.driver.option_keywords import KINDS, CompareKeywords, CompileKeywords, ReadKeywords, compile_options
from nnefc.driver.options import CodeOptions, CompileOptions, PrecisionOptions, ReadOptions
from nnefc.quantizer.ranges import METHODS
from nnefc.support.diagnostics import DeprecatedOption
from nnefc.targets.machine.cpu.target import PRECISIONS

ALL = {name: each for kind in KINDS.values() for name, each in option_fields(kind).items()}


def test_keywords_are_the_fields_with_their_types() -> None:
    for name, option in ALL.items():
        assert CompileKeywords.__annotations__[name].__forward_arg__ == option.type, name
    assert set(CompileKeywords.__annotations__) == set(ALL)
    assert set(ReadKeywords.__annotations__) == set(option_fields(ReadOptions))


def test_every_field_is_documented_and_in_a_group() -> None:
    for kind in KINDS.values():
        assert [each.name for each in fields(kind)] == list(option_fields(kind))
    for name, option in ALL.items():
        words = documentation_of(option)
        assert words.group in GROUPS and words.meaning.endswith("."), name


def test_choices_are_those_of_the_modules_that_use_them() -> None:
    precision = option_fields(PrecisionOptions)
    assert documentation_of(precision["precision"]).choices == (*PRECISIONS, "int8", "auto")
    assert documentation_of(precision["method"]).choices == tuple(METHODS)


@pytest.mark.parametrize(
    ("function", "keywords"),
    [(nnefc.compile, CompileKeywords), (nnefc.convert, ReadKeywords), (nnefc.compare, CompareKeywords)],
)
def test_signatures_and_docstrings_list_the_options(function: Callable[..., Any], keywords: type[Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert set(keywords.__annotations__) <= set(parameters)
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values())
    assert parameters["random_weights"].default is None and "{options}" not in (function.__doc__ or "")
    assert "Seed for random values of weights" in (function.__doc__ or "")


def test_help_texts_name_options_as_they_are_written_there() -> None:
    flags = {name: flag_of(name, each) for name, each in ALL.items()}
    assert "the data of --calibrate. auto" in help_of("precision", ALL["precision"], flags)
    assert "the data of `calibrate`. `auto`" in python_help(ALL["precision"])
    assert flags["values"] == "--value"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"shap": {}}, "nnefc.compile has no option 'shap'\nhint: did you mean shape?"),
        ({"xyz": 1}, "nnefc.compile has no option 'xyz'\nhint: its options are random_weights, "),
        (
            {"output_tensors": "conv1"},
            "output_tensors is 'conv1', not a list of names\nhint: such as ",
        ),
        ({"operators": "mine.py"}, "operators is 'mine.py', not a list of files"),
        ({"strict": "false"}, "strict is 'false', not True or False"),
        ({"random_weights": 1.5}, "random_weights is 1.5, not an integer"),
        ({"max_depth": 0}, "max_depth is 0, and must be at least 1"),
        ({"dialect": "Final"}, "dialect 'Final' is none of provisional, final\nhint: did you mean 'final'?"),
        ({"precision": "fp8"}, "precision 'fp8' is none of fp32, tf32, bf16, fp16, int8, auto"),
        ({"shape": [1, 3]}, "shape is a list, not shapes by the names of inputs"),
        ({"values": [1]}, "values is a list, not values by the names of inputs"),
        ({"specialize": {"n": 1}}, "specialize is a dict, not a list of sizes by name"),
        ({"memory_budget": float("nan")}, "the memory budget nan is less than 1"),
        ({"max_error": 0, "precision": "auto"}, "the largest error 0.0 is not above 0"),
        ({"max_error": 1e-3}, "max_error is for precision auto"),
        ({"only_specialized": True}, "there are no specialized sizes"),
        ({"small": True, "profile": True}, "a small library does not time its kernels"),
        ({"io": "int8", "precision": "auto"}, "precision auto may choose floats"),
    ],
)
def test_wrong_options_are_refused_before_the_model_is_read(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(nnefc.CompileError) as error:
        nnefc.compile("no such file.onnx", **keywords)
    assert message in str(error.value)


def test_an_unknown_keyword_is_a_type_error_too() -> None:
    for function in (nnefc.compile, nnefc.convert, nnefc.quantize, nnefc.compare, nnefc.compile_many):
        more: dict[str, Any] = {"calibrate": {}} if function is nnefc.quantize else {}
        with pytest.raises(TypeError, match="has no option 'registri'"):
            function("no such file.onnx", ["llvm"], registri=1, **more)


def test_values_are_kept_as_tuples_and_numbers_of_python() -> None:
    made = compile_options("f", {"output_tensors": ["a"], "random_weights": np.int64(3), "strict": np.True_})
    assert made.read.output_tensors == ("a",) and type(made.read.random_weights) is int and made.code.strict is True
    assert given_values(made.read) == {"output_tensors": ("a",), "random_weights": 3}
    assert compile_options("f", dict.fromkeys(ALL)) == CompileOptions()
    assert given_values(ReadOptions(shape={}, values={}, random_weights=0)) == {"random_weights": 0}


def test_options_are_pickled_for_other_processes() -> None:
    made = compile_options("f", {"shape": {"x": (1, "1..64")}, "memory_budget": 2, "dump": Path("d")}, "cortex-m4")
    assert pickle.loads(pickle.dumps(made)) == made


def test_the_old_name_of_a_value_works_with_a_warning() -> None:
    with pytest.warns(DeprecatedOption, match="scan_states 'anew' is called 'reset' now"):
        assert ReadOptions(scan_states="anew") == ReadOptions(scan_states="reset")


def test_no_option_is_in_two_parts() -> None:
    assert sum(len(option_fields(kind)) for kind in KINDS.values()) == len(ALL)
    assert CodeOptions().memory_budget == 1.25 and option_keywords.KINDS.keys() | {"target", "passes", "observers"} == {
        each.name for each in fields(CompileOptions)
    }
