"""Operators of TFLite give what LiteRT's kernels give: integers the same bits, reals within rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_cases import FAMILIES
from tflite_files import model_file, reference
from tflite_models import family_model, sample

import nnefc
from nnefc.frontends.tflite.lowering import OPERATORS

pytest.importorskip("ai_edge_litert")

CASES = {case.name for family in FAMILIES.values() for case in family}

ELSEWHERE = {
    **dict.fromkeys(("IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE"), "control"),
    **dict.fromkeys(("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"), "control"),
    **dict.fromkeys(("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM", "SVDF"), "recurrent"),
    **dict.fromkeys(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"), "recurrent"),
    **dict.fromkeys(("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "TFLite_Detection_PostProcess"), "detection"),
    **dict.fromkeys(
        ("STABLEHLO_SCATTER", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_CASE", "STABLEHLO_CBRT", "STABLEHLO_SHIFT_LEFT"),
        "stablehlo",
    ),
    **dict.fromkeys(("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"), "hash_tables"),
    **dict.fromkeys(("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"), "hash_tables"),
    **{n: e.family for n, e in OPERATORS.items() if e.family in ("mediapipe", "stablehlo_basics") and n not in CASES},
    "ethos-u": "ethos_u",
    **dict.fromkeys(("RFFT2D", "REAL", "IMAG", "COMPLEX_ABS"), "signal"),
    **dict.fromkeys(("DENSIFY", "Convolution2DTransposeBias"), "files"),
}
"""Operators that other tests of this folder compute: `test_tflite_NAME.py`."""


@pytest.mark.parametrize(
    "whole", [pytest.param(False, id="sample"), pytest.param(True, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_operators_agree_with_litert(family: str, whole: bool, tmp_path: Path) -> None:
    graph, values, owners = family_model(FAMILIES[family] if whole else sample(FAMILIES[family]))
    content = model_file(graph)
    (wanted,) = reference(content, values, optimized=family == "without_reference_kernels")
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    names = [graph.tensors[index]["name"] for index in graph.inputs]
    found = nnefc.compile(path).run(dict(zip(names, values, strict=True)))
    assert len(found) == len(wanted) == len(owners)
    for case, mine, other in zip(owners, found.values(), wanted, strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype), case.name
        if other.dtype.kind == "f":
            largest = np.abs(other[np.isfinite(other)]).max(initial=1e-9)
            np.testing.assert_allclose(mine, other, rtol=0, atol=case.tolerance * largest, err_msg=case.name)
        else:
            assert np.abs(mine.astype(np.int64) - other).max(initial=0) <= case.apart, case


def test_no_operator_is_without_a_case() -> None:
    assert set(OPERATORS) - CASES - ELSEWHERE.keys() == set(), "add a case to tests/frontends/tflite/tflite_cases.py"
    folder = Path(__file__).parent
    for name, file in ELSEWHERE.items():
        word = name.removeprefix("STABLEHLO_") if file == "stablehlo_basics" else name
        assert word in (folder / f"test_tflite_{file}.py").read_text(), f"test_tflite_{file}.py does not compute {name}"
