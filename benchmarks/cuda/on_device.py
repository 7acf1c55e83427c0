"""Times of libraries on a GPU compared with PyTorch's, for a machine that has a GPU, PyTorch and no compiler of ours.

    python benchmarks/cuda/on_device.py FOLDER --out results.json [--profiles FOLDER] [--peers eager,compile] [NAME ...]

FOLDER is what `libraries.py` wrote. All run between arrays of the GPU, as CUDA graphs; a time is the median of those
between events around groups of runs. PyTorch has its own networks of the same structure, from torchvision and
transformers: channels last, convolutions by the algorithm that cuDNN found to be fastest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import EVERY, drawn

ROOT = Path(__file__).resolve().parents[2]
GROUPS = 15
GROUP_SECONDS = 0.01


def main() -> int:
    """Measure all, and write what was found after each; 1 if anything failed, as the rows say."""
    parser = argparse.ArgumentParser(description="Time libraries on this machine's GPU, compared with PyTorch.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--peers", default="eager")
    parser.add_argument("--loader", type=Path, default=ROOT / "compiler")
    given = parser.parse_args()
    sys.path.append(str(given.loader))
    rows: list[dict[str, Any]] = []
    about = {
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "driver": driver(),
    }
    for name in given.names or sorted(position.parent.name for position in given.folder.glob("*/about.json")):
        folder = given.folder / name
        row = json.loads((folder / "about.json").read_text())
        row = {key: row[key] for key in ("network", "batch", "precision", "seconds", "commit")} | {"name": name}
        try:
            row |= own(folder, given.profiles)
        except Exception:
            row["failed"] = traceback.format_exc()[-1500:]
        for peer in filter(None, given.peers.split(",") if row["network"] in NETWORKS else ()):
            try:
                row[peer] = PEERS[peer](row["network"], row["batch"], row["precision"])
            except Exception:
                row[f"{peer} failed"] = traceback.format_exc()[-800:]
            torch.cuda.empty_cache()
        rows.append(row)
        given.out.write_text(json.dumps({**about, "rows": rows}))
        shown = {
            k: v if not isinstance(v, float) else float(f"{v:.4g}") for k, v in row.items() if k not in ("network",)
        }
        print(json.dumps(shown)[:900], flush=True)
    return int(any("failed" in key for row in rows for key in row))


def driver() -> str:
    """The version of NVIDIA's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]


def own(folder: Path, profiles: Path | None) -> dict[str, Any]:
    """Error and times of a library; milliseconds."""
    import loader

    about = json.loads((folder / "about.json").read_text())
    inputs = drawn(about["inputs"])
    wanted = dict(np.load(folder / "wanted.npz"))
    with loader.load(folder / "network.so") as model:
        error = max(_error(array, wanted[name]) for name, array in model.run(inputs).items())
        host = [_wall(lambda: model.run(inputs)) for _ in range(20)]
        given = [torch.from_numpy(inputs[tensor.name]).cuda() for tensor in model.inputs]
        out = [torch.empty(tensor.shape, device="cuda") for tensor in model.outputs]
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()

        def run() -> None:
            model(*given, out=out, stream=stream)

        with torch.cuda.stream(stream):
            milliseconds = timed(run)
            if profiles is not None:
                profiles.mkdir(parents=True, exist_ok=True)
                (profiles / f"{folder.name}.json").write_text(json.dumps(kernels(run)))
        again = max(_error(o.cpu().numpy(), wanted[t.name]) for o, t in zip(out, model.outputs, strict=True))
    return {"error": max(error, again), "own": milliseconds, "host": 1e3 * statistics.median(host)}


def _error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference from the results that are kept, over the largest value."""
    return float(np.abs(found[::EVERY].astype(np.float64) - wanted).max() / np.abs(wanted).max())


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


def _wall(run: Callable[[], Any]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


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


if __name__ == "__main__":
    sys.exit(main())
