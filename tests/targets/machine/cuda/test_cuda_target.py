"""Names of GPUs to compile for, and what they say."""

from __future__ import annotations

import pytest

import nnefc
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.cuda.capabilities import CAPABILITIES
from nnefc.targets.machine.cuda.target import CudaTarget, parse_cuda_target


def test_without_options_it_is_three_architectures_and_the_oldest_machine_of_this_kind_as_host() -> None:
    target = parse_cuda_target("cuda")
    assert target.architectures == (80, 86, 90)
    assert target.precision == "fp32"
    assert target.host.features == ()


def test_options_say_architectures_host_and_precision() -> None:
    target = parse_cuda_target("cuda -arch=sm_90,sm_80,sm_90 -host='llvm -mtriple=aarch64-linux-gnu' -precision=tf32")
    assert target.architectures == (80, 90)
    assert target.host.triple == "aarch64-unknown-linux-gnu"
    assert target.precision == "tf32"


@pytest.mark.parametrize("text", ["cuda", "cuda -device=h200", "cuda -host=aarch64-linux-gnu -precision=fp16"])
def test_the_name_says_all_of_it_again(text: str) -> None:
    target = parse_cuda_target(text)
    again = parse_cuda_target(target.name)
    assert (again.architectures, again.precision, again.name) == (target.architectures, target.precision, target.name)
    assert (again.host.triple, again.gpu) == (target.host.triple, target.gpu)


@pytest.mark.parametrize(
    ("text", "architectures", "device"),
    [
        ("cuda", (80, 86, 90), "a100"),
        ("cuda -arch=sm_87", (87,), "orin"),
        ("cuda -device=orin-nano", (87,), "orin-nano"),
        ("cuda -arch=sm_80,sm_90 -device=h200", (80, 90), "h200"),
        ("cuda -arch=sm_90a", (90,), "h100"),
        ("cuda -arch=sm_100a,sm_103", (100, 103), "b200"),
    ],
)
def test_code_is_tuned_for_the_device_that_is_named_or_the_oldest_architectures(
    text: str, architectures: tuple[int, ...], device: str
) -> None:
    target = parse_cuda_target(text)
    assert (target.architectures, target.gpu.name) == (architectures, device)
    assert target.has_warpgroup_products == (architectures == (90,))
    assert target.has_tensor_memory == (architectures == (100, 103))


@pytest.mark.parametrize("number", CAPABILITIES)
def test_every_architecture_has_a_target_of_tvms(number: int) -> None:
    target = parse_cuda_target(f"cuda -arch=sm_{number}")
    assert target.to_tvm().attrs["arch"] == f"sm_{min(number, 80)}"  # newer ones make no difference to TVM
    assert target.shared_bytes <= target.max_shared_bytes < 256 << 10


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("cuda -arch=sm_91", "unknown architecture 'sm_91'", "did you mean 'sm_90'"),
        ("cuda -arch=90", "unknown architecture '90'", "sm_90"),
        ("cuda -arch=sm_80,", "unknown architecture ''", "sm_80"),
        ("cuda -arch=", "unknown option '-arch='", "-arch=sm_80,sm_90"),
        ("cuda -arch=sm_80 -arch=sm_90", "twice", ""),
        ("cuda -mcpu=x", "unknown option '-mcpu=x'", "-host=NAME"),
        ("cuda fast", "unknown option 'fast'", "-arch=sm_80,sm_90"),
        ("cuda '-arch=sm_80", "ends inside a quotation", ""),
        ("cuda -host=nonsense", "unknown target 'nonsense'", ""),
        ("cuda -host=x86_64-windows-gnu", "has no NVIDIA GPU", "-host=x86-64"),
        ("cuda -host=cortex-a7", "has no NVIDIA GPU", "-host=x86-64"),
        ("cuda -device=h20", "unknown device 'h20'", "did you mean 'h200'"),
        ("cuda -device=gtx480", "unknown device 'gtx480'", "known are v100"),
        ("cuda -device=", "unknown option '-device='", "-device=NAME"),
        ("cuda -arch=sm_80,sm_86 -device=h100", "has none of its architectures", "sm_90"),
        ("cuda -precision=fp17", "unknown precision 'fp17'", "fp16"),
        ("cuda -precision=fp8", "unknown precision 'fp8'", "fp32, tf32, bf16, fp16"),
        ("cuda -arch=sm_75,sm_80 -precision=bf16", "sm_75 has no tensor cores for bf16", "from sm_80 on"),
        ("cuda -arch=sm_75,sm_80 -precision=tf32", "sm_75 has no tensor cores for tf32", "from sm_80 on"),
    ],
)
def test_wrong_targets_are_errors_that_say_what_is_meant(text: str, message: str, hint: str) -> None:
    with pytest.raises(CompileError) as raised:
        parse_any_target(text)
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize("words", ["llvm -mattr=", "cuda -arch=", "\0"])
def test_a_target_of_any_length_gets_a_short_message(words: str) -> None:
    with pytest.raises(CompileError, match="letters, but may have 4,096") as caught:
        parse_any_target(words + 9000 * "\0")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("words", ["llvm -mattr=", "cuda -host=", ""])
def test_a_target_that_cannot_be_printed_gets_a_short_message(words: str) -> None:
    with pytest.raises(CompileError, match="cannot be printed") as caught:
        parse_any_target(words + 4000 * "\0")
    assert len(str(caught.value)) < 300


def test_a_misspelled_name_is_near_it() -> None:
    with pytest.raises(CompileError) as raised:
        parse_any_target("cudda")
    assert "did you mean 'cuda'" in (raised.value.hint or "")


def test_other_names_are_cpus() -> None:
    assert isinstance(parse_any_target("cuda"), CudaTarget)
    assert isinstance(parse_any_target("x86-64-v3"), Target)


@pytest.mark.parametrize(
    ("target", "precision", "message"),
    [
        ("llvm", "tf32", "code for the target 'llvm' has no precision tf32"),
        ("cuda -arch=sm_75", "tf32", "sm_75 has no tensor cores for tf32"),
    ],
)
def test_a_precision_that_the_target_does_not_have_is_an_error(target: str, precision: str, message: str) -> None:
    with pytest.raises(CompileError) as raised:
        nnefc.compile("never-read.onnx", target, precision=precision)
    assert message in raised.value.message
    assert raised.value.hint
