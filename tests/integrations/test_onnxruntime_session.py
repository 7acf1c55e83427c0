"""Sessions in the form of onnxruntime: models, libraries, threads, and the folder of libraries."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime_calls import CPU, WEIGHTS, given, linear

import nnefc
from nnefc.driver.caching import cache as library_cache
from nnefc.driver.option_keywords import compile_options
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.loader import Model
from nnefc.onnxruntime import get_available_providers
from nnefc.support.diagnostics import CacheWarning


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    position = tmp_path_factory.mktemp("session") / "linear.onnx"
    onnx.save(linear(), position)
    return position


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache") / "libraries"


@pytest.fixture(scope="module")
def session(path: Path, cache: Path) -> nnefc.InferenceSession:
    return nnefc.InferenceSession(path, providers=CPU, cache=cache)


@pytest.fixture(scope="module")
def peer(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=CPU)


@pytest.mark.parametrize("names", [None, [], ["best"], ["best", "y"]])
def test_outputs_by_name(session: nnefc.InferenceSession, peer: Any, names: list[str] | None) -> None:
    for rows in (1, 3):
        found, wanted = session.run(names, given(rows)), peer.run(names, given(rows))
        assert isinstance(found, list)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_what_only_other_outputs_need_is_not_computed(
    session: nnefc.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_names: list[Any] = []

    def run(model: Model, *arguments: Any, outputs: Any = None, **named: Any) -> Any:
        given_names.append(outputs)
        return original(model, *arguments, outputs=outputs, **named)

    original = Model.run
    monkeypatch.setattr(Model, "run", run)
    for names in (["best"], None, ["y", "best", "y"]):
        assert len(session.run(names, given(2))) == len(names or ["y", "best"])
    assert given_names == [["best"], None, ["y", "best", "y"]]


def test_inputs_and_outputs_are_described_alike(session: nnefc.InferenceSession, peer: Any) -> None:
    for found, wanted in ((session.get_inputs(), peer.get_inputs()), (session.get_outputs(), peer.get_outputs())):
        assert [(a.name, a.type, a.shape) for a in found] == [(a.name, a.type, a.shape) for a in wanted]
    assert session.get_providers() == peer.get_providers() == CPU
    found, wanted = session.get_modelmeta(), peer.get_modelmeta()
    for name in vars(found):
        assert getattr(found, name) == getattr(wanted, name), name


def test_wrong_names(session: nnefc.InferenceSession) -> None:
    with pytest.raises(nnefc.RunError, match=r'no output "z"; its outputs are y, best'):
        session.run(["z"], given())
    with pytest.raises(nnefc.RunError, match='"x" is missing'):
        session.run(None, {"k": np.array(1)})


def test_the_bytes_of_a_model(peer: Any, cache: Path) -> None:
    session = nnefc.InferenceSession(linear().SerializeToString(), cache=cache)
    np.testing.assert_allclose(session.run(["y"], given())[0], peer.run(["y"], given())[0], rtol=1e-5)


def test_a_compiled_library(session: nnefc.InferenceSession, cache: Path) -> None:
    (library,) = cache.glob("linear-*.so")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    again = nnefc.InferenceSession(library, options)
    np.testing.assert_array_equal(again.run(["y"], given())[0], session.run(["y"], given())[0])
    with pytest.raises(nnefc.LoadError, match=r"compiled already: strict"):
        nnefc.InferenceSession(library, strict=True)


def test_runs_of_several_threads(session: nnefc.InferenceSession, peer: Any) -> None:
    wrong = []

    def run(seed: int) -> None:
        for rows in range(1, 30):
            inputs = given(rows * seed)
            if not np.allclose(session.run(["y"], inputs)[0], inputs["x"] * 2 @ WEIGHTS, rtol=1e-4, atol=1e-5):
                wrong.append(rows)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_callback_gets_the_results_or_the_error(session: nnefc.InferenceSession, peer: Any) -> None:
    got, done = [], threading.Semaphore(0)

    def callback(results: list[Any], data: Any, error: str) -> None:
        got.append((results, data, error))
        done.release()

    session.run_async(["y"], given(), callback, "first")
    assert done.acquire(timeout=10)
    session.run_async(None, given() | {"x": given()["x"][0]}, callback, "second")
    assert done.acquire(timeout=10)
    (results, data, error), (none, other, reason) = got
    np.testing.assert_allclose(results[0], peer.run(["y"], given())[0], rtol=1e-5)
    assert (data, error, none, other) == ("first", "", [], "second")
    assert 'input "x" has the shape [5]' in reason


def test_a_run_that_fails_in_any_way_is_reported(
    session: nnefc.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_memory(*_: Any) -> None:
        raise MemoryError

    messages: list[str] = []
    done = threading.Event()
    monkeypatch.setattr(session, "run", without_memory)
    session.run_async(None, given(), lambda _, __, error: (messages.append(error), done.set()), None)
    assert done.wait(10) and messages == ["MemoryError"]


def test_rows_of_classes_come_by_name(tmp_path: Path) -> None:
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])
    node = helper.make_node("ZipMap", ["scores"], ["named"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"])
    map_type = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    named = helper.make_value_info("named", helper.make_sequence_type_proto(map_type))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "classes", [scores], [named])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session, peer = nnefc.InferenceSession(model), onnxruntime.InferenceSession(model, providers=CPU)
    x = {"scores": np.array([[0.5, 0.25, 1], [2, 3, 4]], np.float32)}
    assert session.run(None, x) == peer.run(None, x)
    assert session.get_outputs()[0].type == peer.get_outputs()[0].type


def test_a_session_is_freed_with_its_last_reference(path: Path, cache: Path) -> None:
    session = nnefc.InferenceSession(path, cache=cache)
    session.run(None, given())
    alive = weakref.ref(session)
    del session
    assert alive() is None


def test_a_provider_that_is_not_here_is_left_out(path: Path, cache: Path) -> None:
    assert get_available_providers()[-1] == CPU[0]
    missing = "TensorrtExecutionProvider"
    with pytest.warns(UserWarning, match=f"{missing} is not available on this machine"):
        session = nnefc.InferenceSession(path, providers=[missing, *CPU], cache=cache)
    assert session.get_providers() == CPU
    with pytest.warns(UserWarning, match="options of 1 providers, but 2"):
        nnefc.InferenceSession(path, providers=[*CPU, "X"], provider_options=[{}], cache=cache)


def test_a_target_is_refused(path: Path) -> None:
    with pytest.raises(nnefc.LoadError, match="providers say"):
        nnefc.InferenceSession(path, target="llvm -mcpu=x86-64-v3")


# --- the folder of libraries


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The models that are compiled while a test runs."""
    seen: list[Path] = []
    compile_model = library_cache._compiled

    def counting(model: Path, *args: Any) -> nnefc.Artifact:
        seen.append(model)
        return compile_model(model, *args)

    monkeypatch.setattr(library_cache, "_compiled", counting)
    return seen


def test_a_model_is_compiled_once(session: nnefc.InferenceSession, path: Path, cache: Path, compiled: Any) -> None:
    del session
    nnefc.InferenceSession(path, cache=cache)
    moved = cache.parent / "linear.onnx"
    moved.write_bytes(path.read_bytes())
    nnefc.InferenceSession(moved, cache=cache)
    assert compiled == []
    nnefc.InferenceSession(path, cache=cache, strict=True)
    onnx.save(linear(2 * WEIGHTS), moved)
    nnefc.InferenceSession(moved, cache=cache)
    assert compiled == [path, moved]


@pytest.mark.slow
def test_weights_in_other_files_count(tmp_path: Path, compiled: Any) -> None:
    path, cache = tmp_path / "linear.onnx", tmp_path / "cache"
    settings = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    for weights in (WEIGHTS, WEIGHTS, 2 * WEIGHTS):
        (tmp_path / "w.bin").unlink(missing_ok=True)
        onnx.save(linear(weights), path, **settings)
        (y,) = nnefc.InferenceSession(path, cache=cache).run(["y"], given())
        np.testing.assert_allclose(y, given()["x"] * 2 @ weights, rtol=1e-5)
    assert len(compiled) == 2


def test_values_that_numpy_prints_alike_are_others(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    sum (float[2000] x, float[2000] m) => (float[2000] y) { y = Add (x, m) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "sum.onnx")
    many = np.zeros(2000, np.float32)
    for changed in (0, 7):
        many[1000] = changed
        session = nnefc.InferenceSession(tmp_path / "sum.onnx", cache=tmp_path / "cache", values={"m": many})
        np.testing.assert_array_equal(session.run(None, {"x": np.zeros(2000, np.float32)})[0], many)


def test_options_are_known_by_what_they_say(tmp_path: Path) -> None:
    data = tmp_path / "images.npz"

    def messages(keywords: dict[str, Any]) -> str | None:
        return library_cache._options_text(compile_options("f", {"precision": "int8", **keywords}))

    seen = []
    for value in (1, 2):
        np.savez(data, x=np.full(3, value))
        seen.append(messages({"calibrate": data}))
    assert len({*seen, messages({"calibrate": {"x": np.full(3, 1)}}), messages({}), messages({"strict": True})}) == 5
    assert len({messages({"values": {"a": np.array(["x", last], object)}}) for last in "yz"}) == 2
    for unknown in (
        {"calibrate": tmp_path / "none"},
        {"operators": ["own.py"]},
        {"dump": "d"},
        {"values": {"a": {1, 2}}},
    ):
        assert messages(unknown) is None


@pytest.mark.slow
def test_tensors_of_a_document_count(tmp_path: Path, compiled: Any) -> None:
    document = tmp_path / "net" / "graph.nnef"
    document.parent.mkdir()
    document.write_text(
        "version 1.0; graph g(x) -> (y) { x = external<scalar>(shape = [1, 2]); "
        "w = variable<scalar>(shape = [1, 2], label = 'w'); y = mul(x, w); }"
    )
    sources = set()
    for weight, model in ((1, document), (9, document), (9, document), (1, document.parent), (2, document.parent)):
        write_tensor(document.with_name("w.dat"), np.full((1, 2), weight, np.float32))
        session = nnefc.InferenceSession(model, cache=tmp_path / "cache")
        np.testing.assert_array_equal(session.run(None, {"x": np.ones((1, 2), np.float32)})[0], [[weight] * 2])
        sources.add(session._libraries.first.model.source)
    assert len(compiled) == 4  # the third is known again
    assert len(sources) == 3  # a folder and its document are the same model


def test_files_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = tmp_path / "models" / "linear.onnx"
    path.parent.mkdir()
    settings = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(linear(), path, **settings)
    path.write_bytes(path.read_bytes().replace(b"w.bin", b"../w."))
    with pytest.raises(nnefc.CompileError):
        nnefc.InferenceSession(path, cache=tmp_path / "cache")


def test_the_environment_names_the_folder(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNEFC_CACHE", str(tmp_path / "here"))
    nnefc.InferenceSession(path)
    assert len(list((tmp_path / "here").glob("linear-*.so"))) == 1


def test_a_folder_that_cannot_be_written(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(CacheWarning, match=r"linear\S* is not cached: cannot write"):
        session = nnefc.InferenceSession(path, cache=tmp_path / "file" / "folder")
    assert len(session.run(None, given())) == 2


def test_a_library_that_is_larger_than_the_cache(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNEFC_CACHE_SIZE", "1k")
    assert nnefc.InferenceSession(path, cache=tmp_path / "small").run(None, given())
