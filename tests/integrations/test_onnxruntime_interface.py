"""onnxruntime's interface, name by name and call by call, compared with onnxruntime itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnxruntime_calls import (
    CALLS,
    CPU,
    Failure,
    attribute,
    external,
    from_memory,
    given,
    linear,
    options,
    outcome,
    profiled,
    session_of,
)

import nnefc
import nnefc.onnxruntime as ort
from nnefc.integrations.onnxruntime.environment import VERSION

onnxruntime_interface = pytest.importorskip("onnxruntime_interface")

IS_SAME_VERSION = onnxruntime.__version__.split(".")[:2] == VERSION.split(".")[:2]

of_this_version = pytest.mark.skipif(not IS_SAME_VERSION, reason=f"the interface is that of onnxruntime {VERSION}")

UNLIKE = {
    "copy_tensors": "onnxruntime for CPUs copies nothing",
    "__author__": "the author's name",
}
"""Calls whose results differ on purpose."""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder of libraries, so that the model of the calls is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNEFC_CACHE", str(tmp_path_factory.mktemp("libraries")))
        onnxruntime.set_default_logger_severity(4)
        yield
        onnxruntime.set_default_logger_severity(2)


@pytest.fixture(scope="module")
def sessions(libraries: None) -> tuple[Any, Any]:
    content = linear().SerializeToString()
    peer, session = (  # by default onnxruntime has a thread for each core, and refuses run_async with a single one
        package.InferenceSession(content, options(package, intra_op_num_threads=2), providers=CPU)
        for package in (onnxruntime, ort)
    )
    return peer, session


@of_this_version
def test_the_page_is_what_the_packages_say() -> None:
    found = onnxruntime_interface.PAGE.read_text(encoding="utf-8")
    assert found == onnxruntime_interface.page(), "run: python docs/onnxruntime_interface.py"


@of_this_version
def test_every_name_is_there_and_is_called() -> None:
    rows = onnxruntime_interface.rows()
    at_top = [row.name for row in rows if "." not in row.name]
    assert [name for name in at_top if not hasattr(ort, name)] == []
    tried = {*CALLS}
    tried |= {name for name in onnxruntime_interface.names() if name.rpartition(".")[0] in _BY_VALUE}
    untried = [row.name for row in rows if row.state in ("equal", "different") and row.name not in tried]
    assert untried == []
    assert [name for name in onnxruntime_interface.DIFFERENT if name not in onnxruntime_interface.names()] == []


_BY_VALUE = (
    *("OrtArenaCfg", "OrtDevice", "OrtEpDevice", "OrtExternalInitializerInfo", "OrtHardwareDevice", "OrtMemoryInfo"),
    *("SessionIOBinding", "SparseTensor"),
)
"""Classes whose members are read by the calls of the class, or of the one that uses it."""


@of_this_version
def test_every_name_of_the_module_of_cpp_classes_is_there() -> None:
    names = [name for name in dir(onnxruntime.capi.onnxruntime_pybind11_state) if not name.startswith("_")]
    assert [name for name in names if not hasattr(ort.capi.onnxruntime_pybind11_state, name)] == []
    names = ["quantize_matmul_4bits", "get_all_operator_schema"]
    for name in names:
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.NotImplemented, match=f"{name} is not a part of nnefc"):
            getattr(ort.capi.onnxruntime_pybind11_state, name)()


@pytest.mark.parametrize("name", [name for name in CALLS if name not in UNLIKE])
@pytest.mark.sample(4)
def test_calls_end_alike(sessions: tuple[Any, Any], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    peer, session = sessions
    different = []
    for number, call in enumerate(CALLS[name]):
        wanted, found = outcome(call, onnxruntime, peer), outcome(call, ort, session)
        if not (found.agrees(wanted) if isinstance(found, Failure) else found == wanted):
            different.append((number, wanted, found))
    assert different == []


def test_profiles_are_chrome_traces(libraries: None, tmp_path: Path) -> None:
    assert profiled(ort, tmp_path) == profiled(onnxruntime, tmp_path)


def test_errors_are_of_both_packages(sessions: tuple[Any, Any]) -> None:
    state = ort.capi.onnxruntime_pybind11_state
    with pytest.raises(state.InvalidArgument, match=r'"x" is tensor\(double\): wanted x: tensor\(float\)') as caught:
        sessions[1].run(None, given() | {"x": np.zeros((1, 5))})
    assert isinstance(caught.value, nnefc.RunError)
    with pytest.raises(state.NoSuchFile, match="NO_SUCHFILE") as missing:
        ort.InferenceSession("no.onnx")
    assert isinstance(missing.value, nnefc.CompileError)


BROKEN = {
    "an operator that does not exist": ("float[2]", "float[2]", "y = NoSuchOperator(x)"),
    "an operator of another domain": ("float[2]", "float[2]", "y = own.Thing(x)"),
    "two types": ("float[2] x, int64[2]", "float[2]", "y = Add(x, z)"),
    "two sizes": ("float[2] x, float[3]", "float[2]", "y = Add(x, z)"),
    "another type of the result": ("float[2]", "int64[2]", "y = Abs(z)"),
    "an attribute that does not exist": ("float[2]", "float[2]", "y = Softmax <own = 1> (z)"),
}


def check_refused_alike(model: onnx.ModelProto) -> None:
    content = model.SerializeToString()
    wanted, found = (outcome(lambda o, _: o.InferenceSession(content, None, CPU), o, None) for o in (onnxruntime, ort))
    assert isinstance(found, Failure) and found.agrees(wanted), (found, wanted)


@pytest.mark.parametrize("name", BROKEN)
def test_models_that_cannot_be_loaded_end_alike(name: str) -> None:
    given, result, nodes = BROKEN[name]
    text = f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g ({given} z) => ({result} y) {{ {nodes} }}'
    check_refused_alike(onnx.parser.parse_model(text.replace("(x)", "(z)")))


def test_a_domain_that_is_not_imported_ends_alike() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] z) => (float[2] y) { y = Abs(z) }'
    )
    model.graph.node[0].domain = "own"
    check_refused_alike(model)


@pytest.mark.parametrize("size", [None, 8])
def test_data_that_is_not_there_ends_alike(size: int | None) -> None:
    def call(o: Any, _: Any) -> Any:
        return external(o, lambda settings, w: size and from_memory(settings, w.tobytes()[:size]))

    wanted, found = outcome(call, onnxruntime, None), outcome(call, ort, None)
    assert isinstance(found, Failure) and found.agrees(wanted), (found, wanted)
    if size is None:
        with pytest.raises(nnefc.CompileError, match="add_external_initializers_from_files_in_memory"):
            call(ort, None)


REFUSED_VALUES = {
    "Gather": ("float[2] x, int64[1] i", "float[1]", "y = Gather(x, i)"),
    "GatherElements": ("float[2] x, int64[1] i", "float[1]", "y = GatherElements(x, i)"),
    "ScatterND": ("float[2] x, int64[1, 1] i", "float[2]", "u = Slice(x, a, b) y = ScatterND(x, i, u)"),
    "Expand": ("float[2] x, int64[1] i", "float[n]", "y = Expand(x, i)"),
}


@pytest.mark.parametrize("name", REFUSED_VALUES)
def test_values_that_kernels_refuse_end_alike(name: str) -> None:
    given, result, nodes = REFUSED_VALUES[name]
    text = f"({given}) => ({result} y) <int64[1] a = {{0}}, int64[1] b = {{1}}> {{ {nodes} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    shape = [size.dim_value for size in model.graph.input[1].type.tensor_type.shape.dim]
    feed = {"x": np.zeros(2, np.float32), "i": np.full(shape, 9, np.int64)}
    content = model.SerializeToString()
    wanted, found = (
        outcome(lambda o, _: o.InferenceSession(content, None, CPU).run(None, feed), o, None)
        for o in (onnxruntime, ort)
    )
    assert isinstance(found, Failure) and found.agrees(wanted), (found, wanted)


@of_this_version
def test_classes_have_no_public_names_of_their_own() -> None:
    own: dict[str, set[str]] = {}
    for name in (each for each in onnxruntime_interface.names() if "." not in each):
        wanted, found = getattr(onnxruntime, name), getattr(ort, name)
        if isinstance(wanted, type) and not issubclass(found, int):
            extra = {each for each in set(dir(found)) - set(dir(wanted)) if not each.startswith("_")}
            own |= {name: extra} if extra else {}
    assert own == {}


def test_bytes_that_are_cut_off_end_alike() -> None:
    content = linear().SerializeToString()[:100]
    wanted, found = (outcome(lambda o, _: o.InferenceSession(content, None, CPU), o, None) for o in (onnxruntime, ort))
    assert isinstance(found, Failure) and found.agrees(wanted), (found, wanted)


def test_options_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="sess_options is a int"):
        session_of(ort, 3)


def test_options_without_an_effect_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "nnefc.onnxruntime")
    for _ in range(2):
        options(ort).add_session_config_entry("tests.no.such.entry", "1")
    assert [record.getMessage().partition(" is accepted")[0] for record in caplog.records] == [
        "the entry tests.no.such.entry of SessionOptions"
    ]
    assert attribute("SessionOptions", "logid", str, 1)


@pytest.mark.parametrize("entry", ["0", "1"])
def test_subnormal_numbers_are_kept_on_request(libraries: None, entry: str) -> None:
    settings = options(ort)
    settings.add_session_config_entry("session.set_denormal_as_zero", entry)
    tiny = np.full((1, 5), 1e-39, np.float32)
    (y, _) = session_of(ort, settings).run(None, {"x": tiny, "k": np.array(1)})
    assert bool(np.any(y)) == (entry == "0")


@pytest.mark.parametrize(
    "call",
    [
        lambda: ort.LoraAdapter(),
        lambda: ort.AdapterFormat(),
        lambda: ort.ModelCompiler(ort.SessionOptions(), b""),
        lambda: ort.ModelPackageContext("folder"),
        lambda: ort.OrtSyncStream(),
        lambda: ort.register_execution_provider_library("name", "path"),
        lambda: ort.SessionOptions().register_custom_ops_library(__file__),
        lambda: ort.InferenceSession(b"\x18\x00\x00\x00ORTM" + bytes(20)),
    ],
)
def test_what_has_no_meaning_is_refused(call: Any) -> None:
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.NotImplemented) as caught:
        call()
    assert len(str(caught.value)) > 60, "the message says what to do"
