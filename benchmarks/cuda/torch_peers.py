"""PyTorch's times on a GPU for `on_device.py`: networks of the same structure as nnefc's, and a profile of kernels.

PyTorch has its own networks, from torchvision and transformers: channels last, convolutions by the algorithm that cuDNN
found to be fastest, launched as a CUDA graph. The wheel of torch 2.15 has 539 MB, those of CUDA's libraries as much as
`onnxruntime_peers.py` lists, and more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from driver_clock import GROUP_SECONDS, GROUPS

__all__ = ["NETWORKS", "PEERS", "kernels"]


def kernels(run: Callable[[], None]) -> list[tuple[str, float, int]]:
    """Microseconds of each kernel of a run, and how often it is launched."""
    runs = 5
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(runs):
            run()
        torch.cuda.synchronize()
    found = [(e.key, e.device_time_total / runs, e.count // runs) for e in profile.key_averages()]
    return sorted((each for each in found if each[1] > 0), key=lambda each: -each[1])


def eager(network: str, batch: int, precision: str) -> float:
    """PyTorch without its compiler, launched as one graph."""
    return _peer(network, batch, precision, lambda module: module)


def compiled(network: str, batch: int, precision: str) -> float:
    """PyTorch with its compiler, which chooses among kernels by trying them."""
    return _peer(network, batch, precision, lambda module: torch.compile(module, fullgraph=True))


PEERS = {"eager": eager, "compile": compiled}


def _peer(network: str, batch: int, precision: str, made: Callable[[Any], Any]) -> float:
    half = precision == "fp16"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True
    build, shape = NETWORKS[network]
    dtype = torch.float16 if half else torch.float32
    module = build().eval().cuda().to(dtype)
    x = torch.randn(shape(batch), device="cuda", dtype=dtype)
    if x.ndim == 4:
        module, x = module.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    module = made(module)
    with torch.inference_mode():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                module(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            module(x)
        with torch.cuda.stream(stream):
            return timed(graph.replay)


def timed(run: Callable[[], Any]) -> float:
    """Milliseconds of a run on the current stream: the median of groups of runs."""
    run()
    torch.cuda.synchronize()
    began = time.monotonic()
    run()
    torch.cuda.synchronize()
    count = max(1, min(200, int(GROUP_SECONDS / max(time.monotonic() - began, 1e-6))))
    found = []
    for _ in range(GROUPS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            run()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / count)
    return statistics.median(found)


def _vision(name: str) -> Callable[[], Any]:
    def build() -> Any:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return build


def _bert() -> Any:
    import transformers

    config = transformers.BertConfig(hidden_act="gelu_new", attn_implementation="sdpa")

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = transformers.BertModel(config, add_pooling_layer=False).encoder

        def forward(self, x: Any) -> Any:
            return self.encoder(x)[0]

    return Encoder()


def _lstm() -> Any:
    return torch.nn.LSTM(256, 256)


def image(size: int) -> Callable[[int], tuple[int, ...]]:
    """The shape of images."""
    return lambda batch: (batch, 3, size, size)


NETWORKS: dict[str, tuple[Callable[[], Any], Callable[[int], tuple[int, ...]]]] = {
    "resnet50": (_vision("resnet50"), image(224)),
    "mobilenet_v2": (_vision("mobilenet_v2"), image(224)),
    "efficientnet_b0": (_vision("efficientnet_b0"), image(224)),
    "squeezenet": (_vision("squeezenet1_0"), image(224)),
    "densenet121": (_vision("densenet121"), image(224)),
    "vit_b16": (_vision("vit_b_16"), image(224)),
    "bert_base": (_bert, lambda batch: (batch, 128, 768)),
    "lstm": (_lstm, lambda batch: (100, batch, 256)),
}
