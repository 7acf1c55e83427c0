"""Runs the cases of passes in this folder: a program as text, and what the passes make of it.

`python tests/passes/filecheck/update.py FILE` writes what they make of it now, to be read before it is committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pass_cases import case_files, difference, read_cases, run_case

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("path", case_files(FOLDER), ids=lambda path: str(path.relative_to(FOLDER).with_suffix("")))
def test_passes_make_the_programs_that_the_file_expects(path: Path) -> None:
    file, run = read_cases(path), set[str]()
    wrong = filter(None, (difference(case, *run_case(case, run)) for case in file.cases))
    if text := "\n\n".join(wrong):
        pytest.fail(f"{path.relative_to(FOLDER)}: update.py writes what is found\n{text}", pytrace=False)
    unused = [module for module in file.modules(FOLDER) if str(module) not in run]
    assert not unused, f"{path}: these cases call no function of {', '.join(map(str, unused))}"
