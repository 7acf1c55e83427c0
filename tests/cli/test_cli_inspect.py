"""`nnefc inspect`: the digits network, whose numbers can be worked out by hand, and documents of one's own."""

from __future__ import annotations

from pathlib import Path

import nnef
import pytest
from click.testing import CliRunner

from nnefc.cli import main

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"

OPEN = """version 1.0;
graph g(x) -> (y)
{
    x = external(shape = [1, 3, 0, 0]);
    w = variable(shape = [4, 3, 3, 3], label = 'w');
    c = conv(x, w, padding = [(0, 0), (0, 0)]);
    y = relu(c);
}
"""


def inspect(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["inspect", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "open.nnef"
    path.write_text(OPEN)
    return path


def test_the_interface_the_size_and_the_operations_of_a_model() -> None:
    status, text, _ = inspect(DIGITS)
    assert status == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["digits"] in lines
    assert ["input", "image", "float32", "[1,", "1,", "8,", "8]"] in lines
    assert ["output", "probability", "float32", "[1,", "10]"] in lines
    # 16 filters of 1 x 3 x 3 at 8 x 8 positions, 32 of 16 x 3 x 3 at as many, 512 x 10
    assert f"multiply-adds  {16 * 9 * 64 + 32 * 16 * 9 * 64 + 512 * 10:,} " in text
    assert ["2", "conv"] in lines
    assert ["1", "softmax"] in lines


def test_the_flattened_graph_is_a_document_that_others_read() -> None:
    status, text, _ = inspect(DIGITS, "--flat")
    assert status == 0
    operations = [operation.name for operation in nnef.parse_string(text).operations]
    original = nnef.parse_string((DIGITS / "graph.nnef").read_text())
    assert operations == [operation.name for operation in original.operations]


def test_shapes_may_come_from_the_command_line_and_weights_need_not_be_there(document: Path) -> None:
    status, text, _ = inspect(document, "--shape", "x=1,3,10,10")
    assert status == 0
    assert "[1, 4, 8, 8]" in text
    assert f"{4 * 3 * 9 * 64:,}" in text
    assert inspect(document, "--flat", "--shape", "x=1,3,10,10", "--random-weights", 0)[0] == 0


def test_the_tensors_asked_for_are_the_outputs(document: Path) -> None:
    arguments = (document, "--shape", "x=1,3,5,5", "--random-weights", 0, "--output-tensor", "c")
    lines = [line.split() for line in inspect(*arguments)[1].splitlines()]
    assert [line[1] for line in lines if line[:1] == ["output"]] == ["c"]
    assert inspect(*arguments, "--flat")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "x=1,9"], "4: [1, 3, 0, 0]"),
        (["--shape", "z=1"], "'z'"),
        (["--output-tensor", "d"], "'d'"),
    ],
)
def test_what_is_missing_is_an_error_with_a_location_or_a_way_out(
    document: Path, arguments: list[str], message: str
) -> None:
    status, text, error = inspect(document, *arguments)
    assert (status, text) == (1, "")
    assert "error: " in error
    assert message in error


@pytest.mark.parametrize("name", ["missing.nnef", "missing.so", "library.so", "folder"])
def test_files_that_are_none_are_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "library.so").write_bytes(b"\x7fELF and nothing more")
    (tmp_path / "folder").mkdir()
    status, text, error = inspect(tmp_path / name)
    assert (status, text) == (1, "")
    assert "error: " in error
    assert name in error
    assert "internal" not in error


def test_a_library_takes_no_options_of_models(tmp_path: Path) -> None:
    (tmp_path / "library.so").write_bytes(b"\x7fELF and nothing more")
    assert inspect(tmp_path / "library.so", "--flat")[0] == 2
    assert inspect(tmp_path / "library.so", "--graph", "g")[0] == 2
