"""The declarations of attributes: each is used, and no key is spelled anywhere else."""

from __future__ import annotations

import re
from pathlib import Path

import ir_attributes
import pytest

from nnefc.ir import attributes
from nnefc.ir.attributes import ATTRIBUTES, Form

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("key", ATTRIBUTES)
def test_an_attribute_is_set_and_read(key: str) -> None:
    setters, readers = ir_attributes.uses()[key]
    assert setters and readers


def test_the_name_of_a_constant_is_that_of_its_key() -> None:
    names = {value: name for name, value in vars(attributes).items() if isinstance(value, str) and value in ATTRIBUTES}
    assert names == {key: key.removeprefix("nnefc.").rstrip(".").upper() for key in ATTRIBUTES}


def test_the_forms_of_an_attribute_follow_each_other() -> None:
    order = list(Form)
    for attribute in ATTRIBUTES.values():
        first = order.index(attribute.forms[0])
        assert list(attribute.forms) == order[first : first + len(attribute.forms)]


def test_a_meaning_is_a_sentence() -> None:
    assert [a.key for a in ATTRIBUTES.values() if not re.fullmatch(r"[A-Z].*[.]", a.meaning)] == []


def test_no_other_file_spells_a_key() -> None:
    spelled = re.compile("|".join(rf'"{re.escape(key)}' + ("" if key.endswith(".") else '"') for key in ATTRIBUTES))
    own = ROOT / "compiler" / "ir" / "attributes.py"
    files = [path for folder in ("compiler", "passes", "targets") for path in (ROOT / folder).rglob("*.py")]
    found = {
        path.name: spelled.findall(re.sub(r'""".*?"""', "", path.read_text(), flags=re.S))
        for path in files
        if path != own
    }
    assert {name: keys for name, keys in found.items() if keys} == {}


def test_the_page_is_that_of_the_declarations() -> None:
    assert ir_attributes.PAGE.read_text() == ir_attributes.page(), "run: python docs/ir_attributes.py"
