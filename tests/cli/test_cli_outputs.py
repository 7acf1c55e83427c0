"""`nnefc compile` as users choose what is written, and `nnefc inspect` of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from nnefc.cli import main
from nnefc.driver.provenance import source_digest

TEXT = """version 1.0;
graph digits(image) -> (y)
{
    image = external(shape = [1, 1, 8, 8]);
    w = constant(shape = [1, 1, 1, 2], value = [1.0, 2.0]);
    y = conv(image, w);
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.nnef"
    path.write_text(TEXT)
    return path


def nnefc(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def test_a_static_library_with_names_of_its_own_comes_with_its_header(model: Path, tmp_path: Path) -> None:
    status, _, error = nnefc("compile", model, "-o", tmp_path / "libdigits.a", "--name", "digits")
    assert (status, error) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["digits.h", "libdigits.a"]
    text = (tmp_path / "digits.h").read_text()
    assert "input 0: image, float32[1, 1, 8, 8]" in text
    assert "nnefc_status digits_run(nnefc_session *session" in text


def test_inspect_tells_where_the_weights_are_and_which_model_it_was(model: Path, tmp_path: Path) -> None:
    assert nnefc("compile", model, "-o", tmp_path / "digits.so", "--weights", "separate")[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["digits.so", "digits.weights"]
    status, text, _ = nnefc("inspect", tmp_path / "digits.so")
    assert status == 0
    facts = dict(line.split(maxsplit=1) for line in text.splitlines() if len(line.split()) > 1)
    assert facts["source"] == source_digest(model)
    assert facts["constants"].endswith(" in digits.weights")
    assert facts["compiler"].startswith("nnefc ")


@pytest.mark.parametrize(("kind", "end"), [("llvm-ir", ".ll"), ("asm", ".s")])
def test_code_as_text_goes_into_a_folder(kind: str, end: str, model: Path, tmp_path: Path) -> None:
    assert nnefc("compile", model, "-o", tmp_path / "code", "--emit", kind)[0] == 0
    names = sorted(os.listdir(tmp_path / "code"))
    assert names[:2] == [f"entry{end}", f"kernels0{end}"]
    assert all(name.endswith(end) for name in names)


@pytest.mark.parametrize("arguments", [["--emit", "c", "-o", "digits.c"], ["-o", "digits.c", "-t", "cortex-m4"]])
def test_c_source_is_a_file_and_a_header(
    arguments: list[str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert nnefc("compile", model, *arguments)[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["digits.c", "digits.h"]
    assert "int digits_run(const float *image, float *" in Path("digits.h").read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-o", "digits"], 1, ".a for a static one"),
        (["-o", "digits.dll"], 1, "do not end with .dll"),
        (["-o", "digits.a", "--name", "two words"], 1, "cannot begin the names of C functions"),
        (["-o", "code", "--emit", "asm", "--name", "digits"], 2, "--name is an option for libraries"),
        (["-o", "code", "--emit", "asm", "--weights", "separate"], 2, "--weights is an option for libraries"),
        (["-o", "code", "--emit", "pascal"], 2, "pascal"),
        (["-o", "code", "--emit", "c"], 1, "end the name with .c"),
        (["-o", "code.c", "-t", "znver4"], 1, "leave the target out"),
        (["-o", "code.c", "--cc", "gcc"], 2, "--cc is an option for libraries"),
        (["-o", "digits.so", "-t", "generic-c"], 1, "end the name with .c"),
    ],
)
def test_what_does_not_fit_is_reported_and_nothing_is_written(
    arguments: list[str], status: int, message: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found, _, error = nnefc("compile", model, *arguments)
    assert (found, message in error) == (status, True), error
    assert os.listdir(tmp_path) == []
