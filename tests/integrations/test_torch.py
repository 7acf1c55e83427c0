"""Modules of PyTorch, compared with PyTorch itself; where it and its exporter to ONNX are installed."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch._functorch import predispatch  # noqa: E402

import nnefc  # noqa: E402
import nnefc.torch  # noqa: E402
from nnefc.integrations.torch.fast_paths import replace_fast_paths  # noqa: E402
from nnefc.integrations.torch.module import CompiledModule  # noqa: E402
from nnefc.integrations.torch.transforms import ends_transforms  # noqa: E402
from nnefc.torch import backend  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def network() -> Any:
    layers = [torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).eval().requires_grad_(False)


def check(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_module_with_an_dynamic_batch(tmp_path: Path) -> None:
    module = network()
    dynamic_batch = ({0: torch.export.Dim("batch")},)
    compiled = nnefc.torch.compile(module, torch.randn(2, 3, 8, 8), dynamic_shapes=dynamic_batch, threads=1)
    for batch in (1, 2, 5):
        x = torch.randn(batch, 8, 8, 3).permute(0, 3, 1, 2)  # not dense
        check(compiled(x), module(x))
    compiled.export(tmp_path / "net.so")
    x = torch.randn(3, 3, 8, 8)
    check(torch.from_numpy(nnefc.load(tmp_path / "net.so")(x)), module(x))
    with pytest.raises(nnefc.RunError):
        compiled(torch.randn(2, 4, 8, 8))


def test_one_tensor_as_several_arguments_is_an_example_of_each() -> None:
    example = torch.randn(2, 3)
    compiled = nnefc.torch.compile(Weighted(), example, example, threads=1)
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    check(compiled(a, b), a * 2 + b)


class Weighted(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, a: Any, b: Any) -> Any:
        return a * 2 + b


class Structured(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Named arguments, a number, an input that is an output, None, and a result that is there twice."""

    def forward(self, a: Any, pair: tuple[Any, Any], *, k: int = 3) -> dict[str, Any]:
        b, c = pair
        product = a @ b.T * k
        return {"s": product, "n": (a, None), "c": [c + 1, product]}


def test_bfloat16_goes_in_and_out() -> None:
    a, b = torch.randn(2, 3).bfloat16(), torch.randn(2, 3).bfloat16()
    found = nnefc.torch.compile(Weighted(), a, b, threads=1)(a, b)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, a * 2 + b)


def test_convolutions_in_autocast_are_of_bfloat16() -> None:
    module, x = Mixed(), torch.arange(75.0).reshape(1, 3, 5, 5) % 4
    with torch.no_grad():
        check(nnefc.torch.compile(module, x, threads=1)(x), module(x))


def test_structures_of_arguments_and_results() -> None:
    a, b, c = torch.randn(4, 6), torch.randn(5, 6), torch.arange(3)
    compiled = nnefc.torch.compile(Structured(), a, (b, c), kwargs={"k": 2})
    check(compiled(a, (b, c), k=2), Structured()(a, (b, c), k=2))
    with pytest.raises(nnefc.CompileError, match=r"is 5, but the module was compiled with 2"):
        compiled(a, (b, c), k=5)
    with pytest.raises(nnefc.CompileError, match="compiled for"):
        compiled(a, b, k=2)


def test_what_cannot_be_exported() -> None:
    class Branches(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(nnefc.CompileError, match="PyTorch cannot export Branches"):
        nnefc.torch.compile(Branches(), torch.ones(2))
    with pytest.raises(
        nnefc.CompileError, match=r"no translation of the operator aten\._linalg_svd, of SingularValues"
    ):
        nnefc.torch.compile(SingularValues(), torch.ones(3, 3))


class SingularValues(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, x: Any) -> Any:
        return torch.linalg.svd(x)[1]


class Window(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Changes an argument and two buffers; one of its layers updates statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, x: Any, y: Any, k: int = 2) -> Any:
        x.log_()
        self.cache[1:3] += x[:2] * k
        return self.norm(x), y, self.cache.sum(0), 5


def test_buffers_that_are_written_are_states(tmp_path: Path) -> None:
    module = Window().train()
    y = torch.rand(2)
    shapes = ({0: torch.export.Dim("rows", min=2, max=64)}, None)
    compiled = nnefc.torch.compile(module, torch.rand(8, 3) + 1, y, dynamic_shapes=shapes, threads=1)

    def agrees(network: Any, original: Any, rows: int) -> None:
        x = torch.rand(rows, 3) + 1
        changed, wanted = x.clone(), x.clone()
        with torch.no_grad():
            for found, result in zip(network(changed, y), original(wanted, y), strict=True):
                check(torch.as_tensor(found), torch.as_tensor(result))
        check(changed, wanted)

    first = copy.deepcopy(module)
    for rows in (8, 5):
        agrees(compiled, module, rows)
    for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled)), compiled):
        agrees(copied, copy.deepcopy(module), 4)
    compiled.reset()
    agrees(compiled, first, 3)
    compiled.export(tmp_path / "net.so")
    assert [state.name for state in nnefc.load(tmp_path / "net.so").states][:2] == ["cache", "norm.running_mean"]


def test_programs_are_compiled(tmp_path: Path) -> None:
    module, x = torch.nn.Linear(3, 4).eval(), torch.randn(5, 3)
    program = torch.export.export(module, (x[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    file = tmp_path / "linear.pt2"
    torch.export.save(program, file)
    with torch.no_grad():
        wanted = module(x)
    for model in (program, torch.onnx.export(program, (), dynamo=True, verbose=False), file):
        check(torch.from_numpy(nnefc.compile(model).load(threads=1)(x.numpy())), wanted)
    for model in (program, str(file)):
        check(nnefc.torch.compile(model, threads=1)(x), wanted)
    with pytest.raises(nnefc.CompileError, match="give none with it"):
        nnefc.torch.compile(program, x)
    with pytest.raises(nnefc.CompileError, match=r"ends with \.pt2"):
        nnefc.torch.compile("linear.onnx")
    training = torch.export.export(torch.nn.BatchNorm1d(3).train(), (x,))
    with pytest.raises(nnefc.CompileError, match="changes running_mean, running_var, num_batches_tracked in place"):
        nnefc.compile(training)


def test_code_of_a_file_is_not_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    good, bad = tmp_path / "good.pt2", tmp_path / "bad.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), good)
    pickled = io.BytesIO()
    torch.save(Harmful(), pickled)
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w", zipfile.ZIP_STORED) as target:
        (sample,) = (name for name in source.namelist() if "sample_inputs" in name)
        for name in source.namelist():
            target.writestr(name, pickled.getvalue() if name == sample else source.read(name))
    with pytest.raises(nnefc.CompileError, match="Python objects, which could run code"):
        nnefc.compile(bad)
    assert not (tmp_path / "ran").exists()
    bad.write_bytes(b"PK\x03\x04nothing")
    with pytest.raises(nnefc.CompileError, match="PyTorch cannot read"):
        nnefc.compile(bad)


def rows_shifted(x: Any) -> Any:
    y = x.clone()
    x[1:] = y[:-1]
    return x * 2


def broken(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def in_bfloat16(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.linear(x, torch.eye(4)) + 0


class Mixed(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A convolution in bfloat16 by autocast, and float32 behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.layer.weight.data = torch.arange(108.0).reshape(4, 3, 3, 3) % 3 - 1  # results are exact in bfloat16

    def forward(self, x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x)
        return y.float() + 1, y


def encoder() -> Any:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    return torch.nn.TransformerEncoder(layer, 1).eval()  # whose forward uses an operator of its own


def statistics_of_instances() -> Any:
    return torch.nn.InstanceNorm1d(3, track_running_stats=True).train()


def badly_exported(x: Any) -> Any:
    y = torch.zeros(4, 4)
    y.diagonal(1).copy_(x[:3])
    loss = torch.nn.functional.cross_entropy(y, torch.arange(4), label_smoothing=0.2)
    return y, loss


def shifts(x: Any) -> Any:
    values, bits = (x * 31 - 90).to(torch.int8), (x + 2).to(torch.uint8)
    unsigned = values.to(torch.uint8)
    of_two_types = values << bits, values >> bits, unsigned << bits.to(torch.int32)
    of_one = unsigned << bits, unsigned >> bits, values << bits.to(torch.int8), values >> bits.to(torch.int8)
    return (
        *of_two_types,
        *of_one,
        unsigned << 1,
        unsigned >> 9,
        values >> 1,
        3 << bits,
        200 >> bits,
        bits.__ilshift__(1),
    )


def attention(x: Any) -> Any:
    """Of a first row that is masked throughout, of heads in groups, and of two and three dimensions."""
    mask, attend = torch.ones(6, 6, dtype=torch.bool).tril(-1), torch.nn.functional.scaled_dot_product_attention
    added = torch.zeros(6, 6).masked_fill(~mask, -torch.inf)
    in_groups = attend(x, x[:, :2], x[:, :2], added, enable_gqa=True, scale=0.3)
    return attend(x, x, x, mask), in_groups, attend(x[0], x[0], x[0]), attend(x[0, 0], x[0, 1], x[0, 2], is_causal=True)


PROGRAMS = {
    "attention": (attention, torch.arange(96.0).sin().reshape(1, 4, 6, 4)),
    "badly exported": (badly_exported, torch.arange(8.0)),
    "derivatives": (torch.func.hessian(lambda x: (x.sin() ** 2).sum()), torch.arange(3.0)),
    "an encoder": (encoder(), torch.arange(48.0).reshape(2, 3, 8).sin()),
    "instances": (statistics_of_instances(), torch.arange(24.0).reshape(2, 3, 4)),
    "no inputs": (lambda x: torch.arange(5.0) * 2, torch.ones(0)),
    "in place": (rows_shifted, torch.arange(8.0)),
    "shifts": (shifts, torch.arange(8.0)),
    "training": (torch.nn.BatchNorm1d(3).train(), torch.arange(24.0).reshape(8, 3)),
    "no translation": (lambda x: torch.cummax(x, 0)[0], torch.arange(5.0)),
    "no elements": (lambda x: x.reshape(0, 2).sum(), torch.zeros(0)),
    "complex": (lambda x: torch.fft.fft(x) * 2, torch.ones(8, dtype=torch.complex64)),
    "float64": (lambda x: torch.linalg.norm(x) * x, torch.arange(8.0, dtype=torch.float64)),
    "a break": (broken, torch.arange(9.0)),
    "channels last": (torch.nn.Conv2d(3, 4, 3), torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last)),
    "autocast": (in_bfloat16, torch.arange(16.0).reshape(4, 4)),
    "random": (lambda x: torch.rand_like(x) * 0 + x, torch.arange(4.0)),
    "a view": (lambda x: (x.view(-1), x), torch.ones(4, 4)),
    "sizes from data": (torch.nonzero, torch.tensor([0.0, 1, 2])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_torch_compile_runs_what_pytorch_runs(name: str) -> None:
    function, x = PROGRAMS[name]
    given, wanted_given = x.clone(), x.clone()
    original = copy.deepcopy(function)
    with torch.no_grad():
        wanted = original(wanted_given)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = torch.compile(function, backend=backend, options={"threads": 1})(given)
    check(found, wanted)
    check(given, wanted_given)
    if isinstance(function, torch.nn.Module):
        check(function.state_dict(), original.state_dict())  # statistics of training are the module's own
    reasons = [
        str(each.message) for each in caught if "nnefc runs a part of the program in PyTorch" in str(each.message)
    ]
    assert len(reasons) == (name in ("no translation", "complex"))
    if name == "no translation":
        assert reasons[0].endswith("PyTorch's ONNX exporter has no translation of the operator aten.cummax, of graph")


def test_results_are_views_of_inputs_where_they_are_in_pytorch() -> None:
    def parts(x: Any) -> Any:
        return x.T[1:], x + 1, x.view(-1)

    compiled = torch.compile(parts, backend=backend)
    for x in (torch.randn(3, 4), torch.randn(5, 4)[2:]):
        with torch.no_grad():
            found, wanted = compiled(x), parts(x)
            x.mul_(2)
        check(found, wanted)


def test_random_numbers_follow_from_the_seed() -> None:
    dropout = torch.nn.Dropout(0.5).train()
    for compiled in (torch.compile(dropout, backend=backend), nnefc.torch.compile(dropout, torch.ones(64))):
        torch.manual_seed(5)
        first, second = compiled(torch.ones(64)), compiled(torch.ones(64))
        torch.manual_seed(5)
        check(compiled(torch.ones(64)), first)
        assert not torch.equal(first, second)


def test_encoder_layers_with_masks_are_what_the_operator_computes() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval()
    graph = torch.fx.Graph()
    names = ("x", "mask")
    x, mask = (graph.placeholder(name) for name in names)
    attention, parts = layer.self_attn, (layer.norm1, layer.norm2, layer.linear1, layer.linear2)
    weights = [value for part in parts for value in (part.weight.detach(), part.bias.detach())]
    own = [attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight, attention.out_proj.bias]
    held = torch.nn.Module()
    for index, value in enumerate([*(each.detach() for each in own), *weights]):
        held.register_buffer(f"w{index}", value)
    values = [graph.get_attr(f"w{index}") for index in range(12)]
    arguments = (x, 8, 2, *values[:4], False, True, 1e-5, *values[4:], mask, 1)
    graph.output(graph.call_function(torch._transformer_encoder_layer_fwd, arguments))
    module = torch.fx.GraphModule(held, graph)
    given = torch.randn(2, 5, 8), torch.tensor([[0, 0, 0, 1, 1], [0, 1, 0, 0, 0]], dtype=torch.bool)
    with torch.no_grad():
        wanted = module(*given)
        replace_fast_paths(module)
        assert not graph.find_nodes(op="call_function", target=torch._transformer_encoder_layer_fwd)
        check(module(*given), wanted)


def test_wrong_options_are_errors() -> None:
    for options in ({"precison": "fp16"}, {"target": "no-such-processor"}):
        with pytest.raises(Exception, match=r"precison|no-such-processor"):
            torch.compile(lambda x: x + 1, backend=backend, options=options)(torch.ones(2))


def test_torch_compile_takes_every_size() -> None:
    module = network()
    compiled = torch.compile(module, backend=backend, options={"threads": 1})
    for batch in (1, 4, 7):
        x = torch.randn(batch, 3, 8, 8)
        check(compiled(x), module(x))
    module[0].weight.mul_(2)
    check(compiled(x), module(x))
    module[0].weight.data = torch.randn(4, 3, 3, 3)
    check(compiled(x), module(x))


class Apart(torch.nn.Linear):
    """A layer that is a graph of its own, which others of the same sizes share."""

    def forward(self, x: Any) -> Any:
        torch._dynamo.graph_break()
        return super().forward(x).relu()


def test_modules_that_share_a_graph_keep_their_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counting(*given: Any) -> Any:
        made.append(given)
        return CompiledModule(*given)

    monkeypatch.setattr(sys.modules[backend.__module__], "CompiledModule", counting)
    module = torch.nn.Sequential(Apart(4, 4), Apart(4, 4), Apart(4, 4)).requires_grad_(False)
    compiled = torch.compile(module, backend=backend, options={"threads": 1})
    x = torch.randn(2, 4)
    for _ in range(3):
        check(compiled(x), module(x))
    assert len(made) == 3
    module[1].weight.mul_(2)
    for _ in range(2):
        check(compiled(x), module(x))
    assert len(made) == 4


def test_parameters_of_inference_mode_are_left_to_pytorch() -> None:
    with torch.inference_mode():
        module = network()
        compiled = torch.compile(module, backend=backend)
        x = torch.randn(2, 3, 8, 8)
        with pytest.warns(UserWarning, match="made in inference mode"):
            check(compiled(x), module(x))
        module[0].weight.mul_(2)
        check(compiled(x), module(x))


def test_numbers_that_are_no_sizes() -> None:
    def scaled(x: Any, k: float) -> Any:
        return x * k

    compiled = torch.compile(scaled, backend=backend, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for k in (2, 3, 3, 0.5, 0.25):
            check(compiled(torch.ones(3, 5), k), torch.full((3, 5), float(k)))


def test_dynamic_numbers_of_heads() -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    compiled = torch.compile(attend, backend=backend, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for heads, groups in ((4, 2), (6, 3), (6, 2)):
            q, k = torch.randn(2, heads, 5, 8), torch.randn(2, groups, 7, 8)
            check(compiled(q, k, k, enable_gqa=True), attend(q, k, k, enable_gqa=True))


def test_transforms_that_an_error_leaves_begun_are_ended() -> None:
    def graph() -> None:
        predispatch._vmap_increment_nesting(3, "error")
        predispatch._jvp_increment_nesting()
        predispatch._enter_dual_level()
        raise ValueError("left")

    with pytest.raises(ValueError, match="left"), ends_transforms():
        graph()
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    x = torch.arange(3.0)
    check(torch.func.jacfwd(torch.sin)(x), x.cos().diag())


def test_gradients_are_left_to_pytorch() -> None:
    module = network().requires_grad_(True)
    compiled = torch.compile(module, backend=backend)
    x = torch.randn(2, 3, 8, 8)
    with pytest.warns(UserWarning, match="no_grad"):
        compiled(x).sum().backward()
    assert module[0].weight.grad is not None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check(compiled(x), module(x))
