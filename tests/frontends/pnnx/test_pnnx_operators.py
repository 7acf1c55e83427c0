"""Every operator, and what PyTorch computes: one network a family, made by `tests/data/pnnx/cases.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pnnx_files import DATA, run_operator, write_network
from tvm import relax
from virtual_machine import run_in_virtual_machine

import nnefc
from nnefc.frontends.pnnx import load
from nnefc.frontends.pnnx.operators.declaration import OPERATORS
from nnefc.frontends.pnnx.param import read_param

CASES = DATA / "cases"
FAMILIES = sorted(path.name.removesuffix(".pnnx.param") for path in CASES.glob("*.pnnx.param"))

UNSPECIFIED = {"torch.empty", "torch.empty_like", "Tensor.new_empty"}
"""Whose values PyTorch leaves open: of them the shapes and the types are compared."""

OF_NAN = {"torch.ne", "torch.not_equal"}
"""Whose results are true where an operand is NaN, which TVM's virtual machine does not give."""

STRUCTURE = {"pnnx.Input", "pnnx.Output"}


COMPILED = {"activation", "recurrent", "scattering"}
"""Families that the compiler's passes have a part in: of NaN, loops, and positions outside a tensor."""

ALWAYS_TRANSLATED = ("elementwise", "reduction")
"""Families whose translations are run in each run of the tests, for they have the most operators."""


def run_compiled(path: Path, inputs: list[np.ndarray]) -> list[np.ndarray]:
    results = nnefc.compile(path).load(threads=1)(*inputs)
    return list(results) if isinstance(results, tuple | list) else [results]


def run_uncompiled(path: Path, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Runs what the front end makes in TVM's virtual machine, which takes a tenth of the time of compiling."""
    return run_in_virtual_machine(relax.transform.LegalizeOps()(load(path).module), inputs)


def compare(
    folder: Path,
    family: str,
    run: Callable[[Path, list[np.ndarray]], list[np.ndarray]] = run_compiled,
    nan: bool = True,
) -> None:
    """Runs the network of a family and names the operators whose results differ from PyTorch's.

    Without `nan`, elements are left out that are NaN in either, and so are the values of OF_NAN.
    """
    with np.load(folder / f"{family}.npz") as file:
        arrays = {kind: [file[f"{kind}_{i}"] for i in range(sum(key.startswith(kind) for key in file))]
                  for kind in ("input", "output")}  # fmt: skip
    path = folder / f"{family}.pnnx.param"
    results = run(path, arrays["input"])
    makers = {name: operator for operator in read_param(path).operators for name in operator.outputs}
    assert len(results) == len(arrays["output"])
    wrong = []
    for number, (result, wanted) in enumerate(zip(results, arrays["output"], strict=True)):
        operator = makers[f"y{number}"]
        if not nan and result.shape == wanted.shape and wanted.dtype.kind == "f":
            kept = ~(np.isnan(result) | np.isnan(wanted))
            result, wanted = result[kept], wanted[kept]
        unspecified = operator.type in UNSPECIFIED or (not nan and operator.type in OF_NAN)
        difference = difference_of(result, wanted, values=not unspecified)
        if difference:
            wrong.append(f"{operator.location.text}: {difference}")
    assert not wrong, "\n\n".join(wrong)


def difference_of(result: np.ndarray, wanted: np.ndarray, values: bool) -> str:
    """In what two arrays differ, or nothing."""
    if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
        return f"{result.dtype}{list(result.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if not values:
        return ""
    exact = wanted.dtype.kind != "f"
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 2e-5, "atol": 2e-5}
    try:
        np.testing.assert_allclose(result, wanted, **tolerance)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=[] if family in COMPILED else [pytest.mark.slow]) for family in FAMILIES]
)
def test_every_operator_of_a_family_agrees_with_pytorch(family: str) -> None:
    compare(CASES, family)


@pytest.mark.parametrize("family", ALWAYS_TRANSLATED)
def test_translations_of_the_largest_families_agree_with_pytorch(family: str) -> None:
    """But for NaN, which only the compiler's passes keep."""
    compare(CASES, family, run_uncompiled, nan=False)


@pytest.mark.parametrize("family", [each for each in FAMILIES if each not in {*COMPILED, *ALWAYS_TRANSLATED}])
@pytest.mark.sample(6)
def test_translations_of_the_operators_of_a_family_agree_with_pytorch(family: str) -> None:
    compare(CASES, family, run_uncompiled)


def test_no_operator_is_without_a_case() -> None:
    tested = {operator.type for family in FAMILIES for operator in read_param(CASES / f"{family}.pnnx.param").operators}
    assert set(OPERATORS) - tested == set()
    assert tested - set(OPERATORS) - STRUCTURE == set()


@pytest.mark.parametrize("family", ["creation", "indexing", "matrix", "padding"])
def test_cases_made_again_with_other_numbers_agree(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(DATA))
    import cases

    cases.make(family, tmp_path, seed=3)
    compare(tmp_path, family)


def test_a_number_next_to_bfloat16_is_one(tmp_path: Path) -> None:
    lines = [
        "pnnx.Input in 0 1 0 #0=(1,3)bf16",
        "pnnx.Expression above 1 1 0 1 expr=gt(@0,0.0)",
        "torch.where chosen 2 1 1 0 2 $condition=1 $input=0 other=0.0",
        "pnnx.Output out 1 0 2",
    ]
    assert str(load(write_network(tmp_path, lines)).module["main"].ret_ty.fields[0].dtype) == "bfloat16"


def test_the_smallest_divisor_of_a_root_mean_square_is_of_the_type(tmp_path: Path) -> None:
    """As PyTorch has it."""
    x = np.array([[3e-5, -2e-5]])
    expected = x / np.sqrt((x**2).mean() + np.finfo(np.float64).eps)
    made = run_operator(tmp_path, "F.rms_norm", [x], "normalized_shape=(2) $input=0")
    np.testing.assert_allclose(made, expected, rtol=1e-12)


def test_positions_to_split_at_count_from_the_end(tmp_path: Path) -> None:
    x = np.arange(7, dtype=np.float32)
    made = run_operator(tmp_path, "torch.tensor_split", [x], "dim=0 indices=(2,-1) $input=0", outputs=3)
    assert [part.tolist() for part in made] == [[0, 1], [2, 3, 4, 5], [6]]
