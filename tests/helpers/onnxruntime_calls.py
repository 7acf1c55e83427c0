"""Calls of onnxruntime's interface, to be made with onnxruntime and with nnefc instead of it.

A call is a function of the module and of one session; its outcome is comparable: arrays with their types, the names of
members of enumerations, the names of classes of errors.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

__all__ = ["CALLS", "CPU", "WEIGHTS", "Call", "Failure", "external", "from_memory", "given", "linear", "outcome"]

CPU = ["CPUExecutionProvider"]
WEIGHTS = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)

Call = Callable[[Any, Any], Any]


def linear(weights: np.ndarray = WEIGHTS) -> onnx.ModelProto:
    """Products with weights, of any number of rows, and where each is largest."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    linear (float[batch, 5] x, int64 k) => (float[batch, 4] y, int64[batch] best) {
        scale = Cast <to = 1> (k)
        xs = Mul (x, scale)
        y = MatMul (xs, w)
        best = ArgMax <axis = 1, keepdims = 0> (y)
    }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    proto.producer_name, proto.domain, proto.doc_string = "tests", "ai.test", "«ä»\nlines"
    helper.set_model_props(proto, {"names": "{0: 'cat'}", "doc_string": "own", "metadata_props.x": "y", "empty": ""})
    return proto


def given(rows: int = 3) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(rows).random((rows, 5), np.float32), "k": np.array(2, np.int64)}


def outcome(call: Call, module: Any, session: Any) -> Any:
    """The result of a call, or the error that it ends with, in a form that can be compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _converted(call(module, session))
        except Exception as error:
            return Failure(tuple(kind.__name__ for kind in type(error).__mro__))


@dataclass(frozen=True)
class Failure:
    """An error, by the names of its classes, its own first."""

    kinds: tuple[str, ...]

    def agrees(self, peer: Any) -> bool:
        """Whether a program that catches the peer's error catches this one."""
        return isinstance(peer, Failure) and peer.kinds[0] in self.kinds


def _converted(value: Any) -> Any:
    match value:
        case None | bool() | str() | bytes():
            return value
        case np.ndarray():
            numbers = value.tolist() if value.dtype.kind in "OU" else np.asarray(value, np.float64).round(4).tolist()
            return str(value.dtype), value.shape, numbers
        case dict():
            return {key: _converted(element) for key, element in value.items()}
        case list() | tuple():
            return [_converted(element) for element in value]
        case _ if hasattr(value, "name") and hasattr(value, "value"):
            return f"{type(value).__name__}.{value.name}"
        case int() | float():
            return value
    return type(value).__name__


def X() -> np.ndarray:
    return given()["x"]


def value(o: Any, array: Any = None) -> Any:
    return o.OrtValue.ortvalue_from_numpy(X() if array is None else array)


def values(o: Any) -> dict[str, Any]:
    return {name: value(o, array) for name, array in given().items()}


def fields(made: Any, *names: str) -> list[Any]:
    return [getattr(made, name) for name in names]


def called(made: Any, *names: str) -> list[Any]:
    return [getattr(made, name)() for name in names]


def setting(made: Any, **attributes: Any) -> Any:
    for name, wanted in attributes.items():
        setattr(made, name, wanted)
    return made


def options(o: Any, **attributes: Any) -> Any:
    return setting(o.SessionOptions(), **attributes)


def model() -> bytes:
    return linear().SerializeToString()


def session_of(o: Any, settings: Any = None, providers: Any = CPU, *more: Any, **named: Any) -> Any:
    return o.InferenceSession(model(), settings, providers, *more, **named)


def after(call: Callable[[], Any], *results: Callable[[], Any]) -> list[Any]:
    """The result of a call, and of others after it."""
    return [call(), *(result() for result in results)]


def bound(o: Any, s: Any, outputs: tuple[str, ...] = ("y", "best"), **inputs: Any) -> Any:
    binding = s.io_binding()
    for name, array in (given() | inputs).items():
        binding.bind_cpu_input(name, array)
    for name in outputs:
        binding.bind_output(name)
    return binding


def run_bound(s: Any, binding: Any) -> list[Any]:
    s.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def bound_to(o: Any, s: Any, target: np.ndarray) -> Any:
    binding = bound(o, s, ())
    kept = value(o, target)
    binding.bind_ortvalue_output("y", kept)
    return [*run_bound(s, binding), kept.numpy()]


def bound_to_addresses(o: Any, s: Any) -> Any:
    source, target = X(), np.zeros((3, 4), np.float32)
    binding = bound(o, s, ())
    binding.bind_input("x", "cpu", 0, np.float32, source.shape, source.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    s.run_with_iobinding(binding)
    return [target, binding.get_outputs()[0].data_ptr() == target.ctypes.data]


def asynchronous(s: Any, names: Any, feed: Any) -> Any:
    got: list[Any] = []
    done = threading.Event()
    s.run_async(names, feed, lambda results, data, error: (got.append([results, data, not error]), done.set()), "data")
    assert done.wait(20)
    return got


def profiled(o: Any, folder: Path) -> list[Any]:
    settings = options(o, enable_profiling=True, profile_file_prefix=str(folder / "profile"))
    s = session_of(o, settings)
    began = s.get_profiling_start_time_ns() > 0
    s.run(None, given())
    name = s.end_profiling()
    events = json.loads(Path(name).read_text())
    names = {event["name"] for event in events}
    kernels = any(event["cat"] == "Node" and event["name"].endswith("_kernel_time") for event in events)
    shared = {"session_initialization", "model_run"} <= names
    keys = {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} == set(events[0])
    return [began, Path(name).name.startswith("profile_"), kernels, shared, keys, s.end_profiling()]


def raw(o: Any) -> Any:
    return o.capi.onnxruntime_pybind11_state


def with_adapter(o: Any) -> Any:
    """Of onnxruntime: an adapter that does not exist."""
    return o.LoraAdapter().Load("no/adapter")


def device(o: Any, name: str = "cpu", number: int = 0) -> Any:
    return o.OrtDevice.make(name, number)


def coordinates(o: Any, *indices: int) -> Any:
    shape, elements = np.array([3, 3], np.int64), np.array([1, 2], np.float32)
    return o.SparseTensor.sparse_coo_from_numpy(shape, elements, np.array(indices or (0, 4), np.int64), device(o))


def rows(o: Any) -> Any:
    shape, elements = np.array([3, 3], np.int64), np.array([1, 2], np.float32)
    inner, outer = np.array([0, 1], np.int64), np.array([0, 1, 2, 2], np.int64)
    return o.SparseTensor.sparse_csr_from_numpy(shape, elements, inner, outer, device(o))


def memory(o: Any, name: str = "Cpu") -> Any:
    return o.OrtMemoryInfo(name, o.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, o.OrtMemType.DEFAULT)


MEMORY = ("name", "device_id", "mem_type", "allocator_type", "device_mem_type", "device_vendor_id")
TENSOR = ("device_name", "shape", "data_type", "element_type", "has_value", "is_tensor", "numpy")


def attribute(kind: str, name: str, good: Callable[[Any], Any], bad: Any) -> dict[str, list[Call]]:
    """Calls that read the default of an attribute, set it, and set it to a value of a wrong type."""

    def made(o: Any) -> Any:
        return getattr(o, kind)()

    calls: list[Call] = [
        lambda o, s: getattr(made(o), name),
        lambda o, s: getattr(setting(made(o), **{name: good(o)}), name),
        lambda o, s: setting(made(o), **{name: bad}),
    ]
    return {f"{kind}.{name}": calls}


ATTRIBUTES: dict[str, list[Call]] = {}
for _kind, _names in {
    "SessionOptions": [
        *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling"),
        *("use_deterministic_compute", "use_per_session_threads"),
    ],
    "RunOptions": ["only_execute_path_to_fetches", "terminate"],
}.items():
    for _name in _names:
        ATTRIBUTES |= attribute(_kind, _name, lambda o: 1, "text")
for _kind, _names in {
    "SessionOptions": ["inter_op_num_threads", "intra_op_num_threads", "log_severity_level", "log_verbosity_level"],
    "RunOptions": ["log_severity_level", "log_verbosity_level"],
}.items():
    for _name in _names:
        ATTRIBUTES |= attribute(_kind, _name, lambda o: np.int32(1), 1.5)
for _kind, _name in (
    *(("SessionOptions", name) for name in ("logid", "optimized_model_filepath", "profile_file_prefix")),
    ("RunOptions", "logid"),
):
    ATTRIBUTES |= attribute(_kind, _name, lambda o: "text", 1)
ATTRIBUTES |= attribute("SessionOptions", "execution_mode", lambda o: o.ExecutionMode.ORT_PARALLEL, 1)
ATTRIBUTES |= attribute("SessionOptions", "execution_order", lambda o: o.ExecutionOrder.PRIORITY_BASED, 1)
ATTRIBUTES |= attribute(
    "SessionOptions", "graph_optimization_level", lambda o: o.GraphOptimizationLevel.ORT_DISABLE_ALL, 99
)

ENUMERATIONS = (
    *("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "ModelPackageWriteMode", "OrtAllocatorType"),
    *("OrtCompileApiFlags", "OrtDeviceMemoryType", "OrtExecutionProviderDevicePolicy", "OrtHardwareDeviceType"),
    *("OrtMemType", "OrtMemoryInfoDeviceType", "OrtSparseFormat", "OrtDeviceVendorId"),
)


def members(kind: str) -> list[Call]:
    return [
        lambda o, s: {name: int(member) for name, member in getattr(o, kind).__members__.items()},
        lambda o, s: [repr(member) for member in getattr(o, kind).__members__.values()],
        lambda o, s: [str(member) == f"{kind}.{member.name}" for member in getattr(o, kind).__members__.values()],
        lambda o, s: [getattr(o, kind)(int(m)) == m for m in getattr(o, kind).__members__.values()],
        lambda o, s: len({*getattr(o, kind).__members__.values()}),
    ]


def inputs(name: str, wrong: Any) -> Call:
    return lambda o, s: s.run(None, given() | {name: wrong})


RUNS: list[Call] = [
    *(lambda o, s, names=names: s.run(names, given()) for names in (None, [], ["best"], ["best", "y"], ["y", "y"])),
    *(lambda o, s, names=names: s.run(names, given()) for names in ("y", ["z"], [3], ("best",))),
    *(lambda o, s, rows=rows: s.run(None, given(rows)) for rows in (0, 1, 64)),
    *(lambda o, s, feed=feed: s.run(None, feed) for feed in ({}, {"k": np.array(1)}, None, [X()])),
    lambda o, s: s.run(None, given() | {"z": X()}),
    lambda o, s: s.run(None, {"z": X(), "k": np.array(1)}),
    lambda o, s: s.run(None, given() | {3: X()}),
    lambda o, s: s.run(None, given(), o.RunOptions()),
    lambda o, s: s.run(None, given(), setting(o.RunOptions(), terminate=True)),
    lambda o, s: s.run(None, given(), setting(o.RunOptions(), only_execute_path_to_fetches=True)),
    lambda o, s: s.run(None, given(), 3),
    lambda o, s: s.run(output_names=["y"], input_feed=given(), run_options=None),
    lambda o, s: s.run(None, values(o)),
    lambda o, s: s.run(None, given() | {"x": coordinates(o)}),
    lambda o, s: s.run(None, given() | {"x": o.OrtValue.ort_value_from_sparse_tensor(coordinates(o))}),
    lambda o, s: s.run(None, given() | {"x": value(o, X().astype(np.float64))}),
    *(inputs("x", X().astype(wrong)) for wrong in (np.float64, np.float16, np.int32, np.bool_, object, str)),
    *(inputs("x", wrong) for wrong in (X().tolist(), [[1, 2, 3, 4, 5]], [*X()], [*X().astype(np.float64)])),
    *(inputs("x", wrong) for wrong in ([*X().astype(np.int32)], [[True] * 5], [[1.0, 2.0], [3.0]], [["a"] * 5])),
    *(inputs("x", wrong) for wrong in (None, "text", 3, 2.5, object(), tuple(X().tolist()), memoryview(X()), {})),
    *(inputs("x", wrong) for wrong in (X()[0], X()[:, :4], X()[None], np.float32(1), np.zeros((3, 0), np.float32))),
    *(inputs("x", right) for right in (np.asfortranarray(X()), X()[::-1], np.tile(X(), 2)[:, ::2])),
    lambda o, s: s.run(None, given() | {"x": np.matrix(X())}),
    *(inputs("k", wrong) for wrong in (2, 2.7, True, np.int64(2), np.array(2, np.int32), np.array(2.0))),
    *(inputs("k", right) for right in ([2], np.array([2]), np.array([[2]]))),
]

SESSIONS: list[Call] = [
    lambda o, s: o.InferenceSession("no.onnx"),
    lambda o, s: o.InferenceSession(Path("no.onnx")),
    lambda o, s: o.InferenceSession(None),
    lambda o, s: o.InferenceSession(3),
    lambda o, s: o.InferenceSession(b""),
    lambda o, s: o.InferenceSession(b"garbage\xff\xff"),
    *(lambda o, s, given=given: session_of(o, None, given).get_providers() for given in (None, [], CPU, CPU * 2)),
    *(
        lambda o, s, given=given: session_of(o, None, given).get_providers()
        for given in (["CUDAExecutionProvider", *CPU], ["NoExecutionProvider"], CPU[0], [3], {*CPU})
    ),
    lambda o, s: session_of(o, None, [(CPU[0], {"a": 1})]).get_provider_options(),
    lambda o, s: session_of(o, None, CPU, [{"a": 1}]).get_provider_options(),
    *(lambda o, s, more=more: session_of(o, None, CPU, more).get_providers() for more in ([{}, {}], [1], {})),
    lambda o, s: session_of(o, None, CPU, None, disabled_optimizers=["a"], enable_fallback=0).get_providers(),
    lambda o, s: session_of(o, None, ["NoExecutionProvider"], enable_fallback=0),
]

CALLS: dict[str, list[Call]] = {
    **ATTRIBUTES,
    **{name: members(name) for name in ENUMERATIONS},
    "__author__": [lambda o, s: isinstance(o.__author__, str)],
    "__version__": [lambda o, s: o.__version__.split(".")[0]],
    "package_name": [lambda o, s: o.package_name],
    "version": [lambda o, s: o.version == o.__version__],
    "cuda_version": [lambda o, s: o.cuda_version],
    "import_capi_exception": [lambda o, s: o.import_capi_exception],
    "get_all_providers": [lambda o, s: o.get_all_providers()],
    "get_available_providers": [lambda o, s: o.get_available_providers()[-1]],
    "get_build_info": [lambda o, s: o.get_build_info()[:0]],
    "get_device": [lambda o, s: o.get_device()],
    "get_version_string": [lambda o, s: o.get_version_string() == o.__version__],
    "get_ep_devices": [lambda o, s: o.get_ep_devices()[0].ep_name],
    "has_collective_ops": [lambda o, s: o.has_collective_ops()],
    "disable_telemetry_events": [lambda o, s: o.disable_telemetry_events()],
    "enable_telemetry_events": [lambda o, s: o.enable_telemetry_events()],
    "preload_dlls": [lambda o, s: o.preload_dlls(), lambda o, s: o.preload_dlls(cuda=False, directory="")],
    "print_debug_info": [lambda o, s: o.print_debug_info()],
    "set_default_logger_callback": [lambda o, s: o.set_default_logger_callback(None)],
    "set_default_logger_severity": [
        *(lambda o, s, n=n: o.set_default_logger_severity(n) for n in (7, -1, "a", 1.5, 3, 2)),
    ],
    "set_default_logger_verbosity": [lambda o, s, n=n: o.set_default_logger_verbosity(n) for n in (0, "a")],
    "set_seed": [lambda o, s, n=n: o.set_seed(n) for n in (3, 1.5, "a")],
    "create_and_register_allocator": [lambda o, s: o.create_and_register_allocator(memory(o), None)],
    "copy_tensors": [
        lambda o, s: after(lambda: value(o), lambda: o.copy_tensors([value(o)], [value(o, X() * 2)])),
        lambda o, s: o.copy_tensors([value(o)], []),
    ],
    "InferenceSession": SESSIONS,
    "InferenceSession.run": RUNS,
    "InferenceSession.run_async": [
        lambda o, s: asynchronous(s, ["best"], given()),
        lambda o, s: asynchronous(s, None, given() | {"x": X()[0]}),
        lambda o, s: asynchronous(s, ["z"], given()),
        lambda o, s: s.run_async(None, {}, print, None),
    ],
    "InferenceSession.run_with_ort_values": [
        lambda o, s: [each.numpy() for each in s.run_with_ort_values(None, values(o))],
        lambda o, s: [called(each, *TENSOR) for each in s.run_with_ort_values(["best"], values(o))],
        lambda o, s: s.run_with_ort_values(None, given()),
        lambda o, s: s.run_with_ort_values(None, {"k": values(o)["k"]}),
        lambda o, s: s.run_with_ort_values(["z"], values(o)),
        lambda o, s: len(s.run_with_ort_values([], values(o), o.RunOptions())),
    ],
    "InferenceSession.run_with_iobinding": [
        lambda o, s: run_bound(s, bound(o, s)),
        lambda o, s: run_bound(s, bound(o, s, ())),
        lambda o, s: run_bound(s, bound(o, s, ("z",))),
        lambda o, s: run_bound(s, bound(o, s, x=X().astype(np.float64))),
        lambda o, s: s.run_with_iobinding(session_of(o).io_binding()),
        lambda o, s: run_bound(s, s.io_binding()),
    ],
    "InferenceSession.run_with_ortvaluevector": [
        lambda o, s: run_on_vectors(o, s),
    ],
    "InferenceSession.io_binding": [lambda o, s: s.io_binding()],
    "InferenceSession.get_inputs": [
        lambda o, s: [fields(each, "name", "type", "shape") for each in s.get_inputs()],
        lambda o, s: [str(each) for each in s.get_inputs()],
    ],
    "InferenceSession.get_outputs": [lambda o, s: [fields(each, "name", "type", "shape") for each in s.get_outputs()]],
    "InferenceSession.get_overridable_initializers": [lambda o, s: s.get_overridable_initializers()],
    "InferenceSession.get_modelmeta": [lambda o, s: s.get_modelmeta()],
    "InferenceSession.get_session_options": [
        lambda o, s: s.get_session_options().intra_op_num_threads,
        lambda o, s: session_of(o, options(o, intra_op_num_threads=1)).get_session_options().intra_op_num_threads,
    ],
    "InferenceSession.get_providers": [lambda o, s: s.get_providers()],
    "InferenceSession.get_provider_options": [lambda o, s: s.get_provider_options()],
    "InferenceSession.get_input_memory_infos": [lambda o, s: [fields(m, *MEMORY) for m in s.get_input_memory_infos()]],
    "InferenceSession.get_output_memory_infos": [
        lambda o, s: [fields(each, *MEMORY) for each in s.get_output_memory_infos()]
    ],
    "InferenceSession.get_input_epdevices": [lambda o, s: [each.ep_name for each in s.get_input_epdevices()]],
    "InferenceSession.get_provider_graph_assignment_info": [lambda o, s: s.get_provider_graph_assignment_info()],
    "InferenceSession.get_profiling_start_time_ns": [lambda o, s: s.get_profiling_start_time_ns() >= 0],
    "InferenceSession.get_tuning_results": [lambda o, s: s.get_tuning_results()],
    "InferenceSession.set_tuning_results": [lambda o, s: s.set_tuning_results([])],
    "InferenceSession.set_ep_dynamic_options": [lambda o, s: s.set_ep_dynamic_options({"a": "b"})],
    "InferenceSession.release_captured_graph": [lambda o, s: s.release_captured_graph()],
    "InferenceSession.set_providers": [
        lambda o, s: after(lambda: s.set_providers(CPU), s.get_providers, lambda: s.run(["best"], given())),
        lambda o, s: after(s.set_providers, s.get_providers),
        lambda o, s: session_of(o).set_providers(["NoExecutionProvider"]),
    ],
    "InferenceSession.disable_fallback": [lambda o, s: s.disable_fallback()],
    "InferenceSession.enable_fallback": [lambda o, s: s.enable_fallback()],
    "InferenceSession.end_profiling": [lambda o, s: s.end_profiling()],
    "InferenceSession.create_ortvalue_from_shape_and_type": [
        lambda o, s: s.create_ortvalue_from_shape_and_type([2], np.float32, "cpu").shape()
    ],
    "NodeArg": [lambda o, s: o.NodeArg(), lambda o, s: setting(s.get_inputs()[0], name="z")],
    "ModelMetadata": [lambda o, s: o.ModelMetadata()],
    **{
        f"NodeArg.{name}": [lambda o, s, name=name: [getattr(each, name) for each in s.get_inputs()]]
        for name in ("name", "type", "shape")
    },
    **{
        f"ModelMetadata.{name}": [lambda o, s, name=name: getattr(s.get_modelmeta(), name)]
        for name in (
            *("custom_metadata_map", "description", "domain", "graph_description", "graph_name", "producer_name"),
            "version",
        )
    },
    "SessionOptions": [
        lambda o, s: setting(o.SessionOptions(), no_such_option=1),
        lambda o, s: session_of(o, options(o, intra_op_num_threads=-1)).get_providers(),
    ],
    "SessionOptions.add_session_config_entry": [
        lambda o, s: o.SessionOptions().add_session_config_entry("a.b", "1"),
        lambda o, s: o.SessionOptions().add_session_config_entry("a", 1),
        lambda o, s: o.SessionOptions().add_session_config_entry("", "1"),
        lambda o, s: o.SessionOptions().add_session_config_entry("a" * 1025, "1"),
    ],
    "SessionOptions.get_session_config_entry": [
        lambda o, s: after(
            (settings := o.SessionOptions()).has_providers,
            lambda: settings.add_session_config_entry("a", "1"),
            lambda: settings.add_session_config_entry("a", "2"),
            lambda: settings.get_session_config_entry("a"),
        ),
        lambda o, s: o.SessionOptions().get_session_config_entry("a"),
    ],
    "SessionOptions.add_free_dimension_override_by_name": [
        lambda o, s: fixed(o, "by_name", "batch", 3),
        lambda o, s: fixed(o, "by_name", "batch", 2),
        lambda o, s: fixed(o, "by_name", "other", 2),
    ],
    "SessionOptions.add_free_dimension_override_by_denotation": [lambda o, s: fixed(o, "by_denotation", "other", 2)],
    "SessionOptions.add_initializer": [
        lambda o, s: replaced(o, "w", np.zeros((5, 4), np.float32)),
        lambda o, s: o.SessionOptions().add_initializer("w", np.zeros(3)),
    ],
    "SessionOptions.add_provider": [
        lambda o, s: after(
            lambda: (settings := o.SessionOptions()).add_provider(CPU[0], {}) or settings.has_providers(),
        ),
        lambda o, s: o.SessionOptions().add_provider("NoExecutionProvider", {}),
        lambda o, s: o.SessionOptions().add_provider("CUDAExecutionProvider", {}),
    ],
    "SessionOptions.add_provider_for_devices": [
        lambda o, s: after(
            lambda: (
                (settings := o.SessionOptions()).add_provider_for_devices(o.get_ep_devices()[:1], {})
                or session_of(o, settings, None).get_providers()
            ),
        ),
    ],
    "SessionOptions.add_external_initializers": [
        lambda o, s: external(o, lambda at, w: (v := value(o, w), at.add_external_initializers(["w"], [v]))),
        lambda o, s: o.SessionOptions().add_external_initializers(["w"], []),
    ],
    "SessionOptions.add_external_initializers_from_files_in_memory": [
        lambda o, s: external(o, lambda at, w: from_memory(at, w.tobytes())),
    ],
    "SessionOptions.set_provider_selection_policy": [
        lambda o, s: (
            (settings := o.SessionOptions()).set_provider_selection_policy(
                o.OrtExecutionProviderDevicePolicy.PREFER_CPU
            )
            or session_of(o, settings, None).get_providers()
        ),
    ],
    "SessionOptions.has_providers": [lambda o, s: o.SessionOptions().has_providers()],
    "SessionOptions.register_custom_ops_library": [
        lambda o, s: o.SessionOptions().register_custom_ops_library("no/library.so")
    ],
    "RunOptions": [lambda o, s: setting(o.RunOptions(), no_such_option=1)],
    "RunOptions.add_run_config_entry": [
        lambda o, s: o.RunOptions().add_run_config_entry("a", "1"),
        lambda o, s: o.RunOptions().add_run_config_entry("", "1"),
    ],
    "RunOptions.get_run_config_entry": [
        lambda o, s: o.RunOptions().get_run_config_entry("a"),
        lambda o, s: (r := o.RunOptions()).add_run_config_entry("a", "1") or r.get_run_config_entry("a"),
    ],
    "OrtValue": [lambda o, s: o.OrtValue(X())],
    **{
        f"OrtValue.{name}": [
            lambda o, s, name=name: getattr(value(o), name)(),
            lambda o, s, name=name: getattr(value(o, np.zeros((0, 2), np.bool_)), name)(),
        ]
        for name in (
            *("device_name", "shape", "data_type", "element_type", "tensor_size_in_bytes", "has_value", "is_tensor"),
            *("is_sparse_tensor", "is_tensor_sequence", "numpy"),
        )
    },
    "OrtValue.data_ptr": [lambda o, s: (array := X(), value(o, array).data_ptr() == array.ctypes.data)[1]],
    "OrtValue.ortvalue_from_numpy": [
        *(
            lambda o, s, kind=kind: called(value(o, X().astype(kind)), *TENSOR)
            for kind in (np.float16, np.float64, np.int8, np.uint16, np.int64, np.bool_, np.complex64, str, object)
        ),
        lambda o, s: value(o, np.asfortranarray(X())).numpy(),
        lambda o, s: value(o, [1.0]),
        lambda o, s: o.OrtValue.ortvalue_from_numpy(X(), "cuda", 0),
        lambda o, s: o.OrtValue.ortvalue_from_numpy(X(), "other"),
    ],
    "OrtValue.ortvalue_from_numpy_with_onnx_type": [
        lambda o, s, n=n: called(with_type(o, n), "data_type", "element_type", "numpy") for n in (16, 17, 4)
    ],
    "OrtValue.ortvalue_from_shape_and_type": [
        *(
            lambda o, s, kind=kind: called(
                o.OrtValue.ortvalue_from_shape_and_type([2, 3], kind), "shape", "data_type", "tensor_size_in_bytes"
            )
            for kind in (np.float32, np.dtype("f8"), np.int64, 1, 16, np.str_)
        ),
    ],
    "OrtValue.from_dlpack": [
        lambda o, s: called(o.OrtValue.from_dlpack(X()), *TENSOR),
        lambda o, s: (array := X(), o.OrtValue.from_dlpack(array).data_ptr() == array.ctypes.data)[1],
        lambda o, s: o.OrtValue.from_dlpack(np.ones(3, np.bool_)).numpy(),
        lambda o, s: np.from_dlpack(value(o)),
        lambda o, s: value(o).__dlpack_device__(),
    ],
    "OrtValue.update_inplace": [
        lambda o, s: (v := value(o)).update_inplace(X() * 2) or v.numpy(),
        lambda o, s: (v := value(o)).update_inplace((X() * 2).reshape(5, 3)) or v.numpy(),
        lambda o, s: (v := value(o)).update_inplace(value(o, X() * 2)) or v.numpy(),
        lambda o, s: value(o).update_inplace(X()[:1]),
        lambda o, s: value(o).update_inplace([1.0]),
    ],
    "OrtValue.as_sparse_tensor": [
        lambda o, s: value(o).as_sparse_tensor(),
        lambda o, s: o.OrtValue.ort_value_from_sparse_tensor(coordinates(o)).as_sparse_tensor().values(),
    ],
    "OrtValue.ort_value_from_sparse_tensor": [
        lambda o, s: called(
            o.OrtValue.ort_value_from_sparse_tensor(rows(o)),
            *("device_name", "shape", "data_type", "element_type", "has_value", "is_tensor", "is_sparse_tensor"),
        ),
        lambda o, s: o.OrtValue.ort_value_from_sparse_tensor(rows(o)).data_ptr(),
    ],
    "IOBinding": [lambda o, s: o.IOBinding(s)],
    "IOBinding.bind_cpu_input": [
        *(lambda o, s, a=a: s.io_binding().bind_cpu_input("x", a) for a in (X(), X().astype("f8"), X().tolist())),
        lambda o, s: s.io_binding().bind_cpu_input("z", X()),
    ],
    "IOBinding.bind_input": [bound_to_addresses],
    "IOBinding.bind_output": [
        lambda o, s: s.io_binding().bind_output("y"),
        lambda o, s: s.io_binding().bind_output("y", buffer_ptr=1),
        lambda o, s: s.io_binding().bind_output("y", "cuda"),
        bound_to_addresses,
    ],
    "IOBinding.bind_ortvalue_input": [
        lambda o, s: (b := bound(o, s)).bind_ortvalue_input("x", value(o, X() * 3)) or run_bound(s, b)
    ],
    "IOBinding.bind_ortvalue_output": [
        lambda o, s: bound_to(o, s, np.zeros((3, 4), np.float32)),
        lambda o, s: bound_to(o, s, np.zeros((2, 4), np.float32)),
        lambda o, s: bound_to(o, s, np.zeros((3, 4), np.float64)),
    ],
    "IOBinding.clear_binding_inputs": [lambda o, s: (b := bound(o, s)).clear_binding_inputs() or run_bound(s, b)],
    "IOBinding.clear_binding_outputs": [
        lambda o, s: (b := bound(o, s)).clear_binding_outputs() or run_bound(s, b),
        lambda o, s: (run_bound(s, b := bound(o, s)) and b.clear_binding_outputs()) or b.get_outputs(),
    ],
    "IOBinding.copy_outputs_to_cpu": [lambda o, s: run_bound(s, bound(o, s, ("best",)))],
    "IOBinding.get_outputs": [
        lambda o, s: run_bound(s, b := bound(o, s)) and [called(each, *TENSOR) for each in b.get_outputs()]
    ],
    "IOBinding.get_outputs_as_ortvaluevector": [
        lambda o, s: run_bound(s, b := bound(o, s)) and [v.numpy() for v in b.get_outputs_as_ortvaluevector()]
    ],
    "IOBinding.synchronize_inputs": [lambda o, s: s.io_binding().synchronize_inputs()],
    "IOBinding.synchronize_outputs": [lambda o, s: s.io_binding().synchronize_outputs()],
    "OrtDevice": [lambda o, s: o.OrtDevice(3)],
    "OrtDevice.make": [
        *(
            lambda o, s, n=n: called(device(o, n, 1), "device_id", "device_type", "device_vendor_id", "device_mem_type")
            for n in ("cpu", "cuda", "dml", "gpu", "npu", "webgpu", "cann")
        ),
        lambda o, s: device(o, "other"),
    ],
    "OrtMemoryInfo": [lambda o, s: fields(memory(o), *MEMORY), lambda o, s: memory(o, "other")],
    "OrtArenaCfg": [
        lambda o, s: fields(o.OrtArenaCfg(0, -1, -1, -1), "max_mem", "arena_extend_strategy"),
        lambda o, s: o.OrtArenaCfg({"max_mem": 5}).max_mem,
    ],
    "OrtEpDevice": [lambda o, s: str(o.get_ep_devices()[0].device.type), lambda o, s: o.OrtEpDevice()],
    "OrtHardwareDevice": [lambda o, s: o.get_ep_devices()[0].device.device_id, lambda o, s: o.OrtHardwareDevice()],
    "SessionIOBinding": [lambda o, s: bound_in_c(o, s)],
    "OrtExternalInitializerInfo": [
        lambda o, s: fields(o.OrtExternalInitializerInfo("a", 1, 2), "filepath", "file_offset", "byte_size")
    ],
    "SparseTensor": [lambda o, s: o.SparseTensor(3)],
    "SparseTensor.sparse_coo_from_numpy": [
        lambda o, s: called(coordinates(o), "values", "dense_shape", "data_type", "device_name", "format"),
        lambda o, s: coordinates(o, 0, 0, 1, 1).as_coo_view().indices().size,
        lambda o, s: coordinates(o, 0, 1, 2),
    ],
    "SparseTensor.sparse_csr_from_numpy": [
        lambda o, s: called(rows(o), "values", "dense_shape", "data_type", "device_name", "format")
    ],
    "SparseTensor.as_coo_view": [
        lambda o, s: coordinates(o).as_coo_view().indices(),
        lambda o, s: rows(o).as_coo_view(),
    ],
    "SparseTensor.as_csrc_view": [
        lambda o, s: called(rows(o).as_csrc_view(), "inner", "outer"),
        lambda o, s: coordinates(o).as_csrc_view(),
    ],
    "SparseTensor.as_blocksparse_view": [lambda o, s: rows(o).as_blocksparse_view()],
    "SparseTensor.to_cuda": [lambda o, s: rows(o).to_cuda(device(o))],
    "capi": [
        lambda o, s: sorted(kind.__name__ for kind in vars(raw(o)).values() if is_error(kind)),
        lambda o, s: raw(o).OrtValueVector.__name__,
        lambda o, s: called(raw(o).OrtValue.ortvalue_from_numpy(X(), device(o)._get_c_device()), *TENSOR),
        lambda o, s: np.from_dlpack(Capsule(value(o)._get_c_value().to_dlpack())),
    ],
}


class Capsule:
    """Shows a capsule of DLPack as an array."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def with_type(o: Any, number: int) -> Any:
    return o.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(4, np.uint8 if number == 17 else np.uint16), number)


def fixed(o: Any, way: str, name: str, size: int) -> list[Any]:
    settings = o.SessionOptions()
    getattr(settings, f"add_free_dimension_override_{way}")(name, size)
    s = session_of(o, settings)
    return [[each.shape for each in (*s.get_inputs(), *s.get_outputs())], s.run(None, given())]


def replaced(o: Any, name: str, weights: np.ndarray) -> Any:
    settings, kept = o.SessionOptions(), value(o, weights)
    settings.add_initializer(name, kept)
    return session_of(o, settings).run(None, given())


def from_memory(settings: Any, content: bytes) -> bytes:
    settings.add_external_initializers_from_files_in_memory(["w.bin"], [content], [len(content)])
    return content


def external(o: Any, give: Callable[[Any, np.ndarray], Any]) -> Any:
    """The results of a model whose weights are in another file, which is not there."""
    proto, settings = linear(), o.SessionOptions()
    (tensor,) = proto.graph.initializer
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", "w.bin"), ("offset", "0"), ("length", str(WEIGHTS.nbytes))):
        tensor.external_data.add(key=key, value=text)
    weights = 3 * WEIGHTS
    kept = [weights, give(settings, weights)]
    results = o.InferenceSession(proto.SerializeToString(), settings, CPU).run(None, given())
    del kept
    return results


def bound_in_c(o: Any, s: Any) -> list[Any]:
    binding = o.SessionIOBinding(s._sess)
    for name, array in given().items():
        binding.bind_input(name, array)
    binding.bind_ortvalue_input("x", value(o, X() * 3)._get_c_value())
    binding.bind_output("y", device(o)._get_c_device())
    binding.synchronize_inputs()
    s._sess.run_with_iobinding(binding, None)
    return [binding.copy_outputs_to_cpu(), [each.numpy() for each in binding.get_outputs()]]


def run_on_vectors(o: Any, s: Any) -> list[Any]:
    state = raw(o)
    feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
    feed = values(o)
    for each in feed.values():
        feeds.push_back(each._get_c_value())
    s.run_with_ortvaluevector(o.RunOptions(), list(feed), feeds, ["y"], fetches, [device(o)._get_c_device()])
    return [each.numpy() for each in fetches]
