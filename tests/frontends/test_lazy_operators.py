"""A front end lists the operators that its modules declare, and imports those that a model needs."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from onnx_models import model, node, save

import nnefc.frontends.onnx.operators as of_onnx
import nnefc.frontends.pnnx.operators as of_pnnx
import nnefc.frontends.tflite.operators as of_tflite
from nnefc.frontends.lazy_operators import LazyOperators
from nnefc.frontends.onnx.operator import OPERATORS as ONNX
from nnefc.frontends.pnnx.operators.declaration import OPERATORS as PNNX
from nnefc.frontends.tflite.lowering import OPERATORS as TFLITE

FORMATS = {"onnx": (ONNX, of_onnx), "pnnx": (PNNX, of_pnnx), "tflite": (TFLITE, of_tflite)}


@pytest.mark.parametrize("name", FORMATS)
def test_each_module_declares_the_operators_that_are_listed_under_it(name: str) -> None:
    """A module that declares others cannot be imported."""
    operators: LazyOperators[Any] = FORMATS[name][0]
    package = FORMATS[name][1]
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    assert all(operators.values())
    assert operators.declared.keys() == set(operators), "add it to operators/__init__.py"


def test_an_operator_is_declared_once_and_where_it_is_listed() -> None:
    operators: LazyOperators[int] = LazyOperators("package", {"one": "A B", "two": "C"})
    operators.declare("A", "package.one", 1)
    with pytest.raises(AssertionError, match="A twice"):
        operators.declare("A", "package.one", 2)
    with pytest.raises(AssertionError, match=r"listed under package\.two"):
        operators.declare("C", "package.one", 3)
    with pytest.raises(AssertionError, match="listed under None"):
        operators.declare("D", "package.one", 4)
    assert list(operators) == ["A", "B", "C"] and "D" not in operators and operators.get("D") is None


UNUSED = tuple(
    f"nnefc.{name}"
    for name in (
        "quantizer.quantize",
        "inspect",
        "operators.text.strings",
        "operators.custom_declaration",
        "frontends.nnef",
    )
)
READ = """
import sys
from pathlib import Path
from nnefc.support.minimal_tvm import import_tvm
import_tvm()
import nnefc.driver.compile
from nnefc.driver.formats import load_network
assert list(load_network(Path({model!r})).outputs)
families = {{name.rpartition(".")[2] for name in sys.modules if name.startswith("nnefc.frontends.onnx.operators.")}}
assert families == {{"activation", "tensors"}}, families
unused = {unused!r}
found = [name for name in sys.modules if name.startswith(unused)]
assert not found, found
"""


def test_a_model_imports_the_families_of_its_operators(tmp_path: Path) -> None:
    path = save(model([node("Relu", ["x"], ["y"])]), tmp_path)
    program = READ.format(model=str(path), unused=UNUSED)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
