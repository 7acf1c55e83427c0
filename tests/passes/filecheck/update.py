"""Writes the programs after the passes into files of cases: all, or those that are named. Read what changes.

python tests/passes/filecheck/update.py [FILE …]
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1] / "helpers"))

from nnefc.cli.minimal_tvm import import_tvm  # noqa: E402

import_tvm()

from pass_cases import case_files, read_cases, run_case, write_cases  # noqa: E402


def main(paths: list[Path]) -> None:
    """Writes the files that differ from what passes make, and prints their names."""
    for path in paths:
        file = read_cases(path)
        text = write_cases(file, {case.title: run_case(case) for case in file.cases})
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or case_files(FOLDER))
