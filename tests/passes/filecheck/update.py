"""Writes the programs after the passes into files of cases: all, or those that are named. Read what changes.

python tests/passes/filecheck/update.py [FILE …]
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1] / "helpers"))

from nnefc.support.minimal_tvm import import_tvm  # noqa: E402

import_tvm()

from pass_cases import case_files, read_cases, run_case, write_cases  # noqa: E402


def main(paths: list[Path]) -> int:
    """Writes the files that differ from what passes make, and prints their names; returns how many it cannot write."""
    failed = 0
    for path in paths:
        try:
            file = read_cases(path)
            text = write_cases(file, {case.title: run_case(case) for case in file.cases})
        except Exception as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed += 1
            continue
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(path)
    return failed


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]] or case_files(FOLDER)))
