"""The declarations are complete, and the documentation is made of them."""

from pathlib import Path

import nnef
import pytest
from nnef_operations import operations_page, operations_table, tract_page

from nnefc.frontends.nnef.declarations import STANDARD, Dialect
from nnefc.frontends.nnef.operations.lowering import by_definition

ROOT = Path(__file__).parents[4]

PROVISIONAL_ONLY = {
    *("planewise_conv", "planewise_deconv", "layer_normalization", "divisive_normalization", "binary_quantize"),
    *("ternary_quantize", "linear_layer", "conv_layer", "deconv_layer", "max_pool_layer", "avg_pool_layer"),
    "batch_normalization_layer",
}


def test_the_page_of_the_documentation_is_up_to_date():
    page = (ROOT / "docs" / "nnef-operations.md").read_text(encoding="utf-8")
    assert page == operations_page(), "run: python docs/nnef_operations.py"


def test_the_page_of_tracts_dialect_has_all_operators_of_the_registries():
    page = (ROOT / "docs" / "nnef-tract.md").read_text(encoding="utf-8")
    assert page == tract_page(page), "run: python docs/nnef_operations.py"


def test_every_operation_of_the_standard_is_declared():
    final = {operation.name for operation in STANDARD if Dialect.FINAL in operation.dialects}
    provisional = {operation.name for operation in STANDARD if Dialect.PROVISIONAL in operation.dialects}
    assert final == set(nnef.StandardOperations) - {"max_unpool", "avg_unpool"}
    assert provisional >= PROVISIONAL_ONLY
    assert provisional - PROVISIONAL_ONLY <= final
    assert (len(final), len(provisional)) == (119, 97)


def test_every_operation_has_a_row_of_its_own():
    rows = operations_table().splitlines()[2:]
    assert len(rows) == len(list(STANDARD))
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("operation", list(STANDARD), ids=lambda operation: operation.name)
def test_declarations_say_what_becomes_of_an_operation(operation):
    for dialect in operation.dialects:
        assert operation.signature.spell(dialect).startswith(operation.name)
        if operation.definition is not None:
            operation.defined(dialect)
    assert (operation.lower is by_definition) == (operation.target == "")
    assert operation.lower is not by_definition or operation.definition is not None
