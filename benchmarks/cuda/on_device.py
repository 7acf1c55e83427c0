"""Results, then times of libraries on a GPU, for a machine that has a GPU, NumPy and no compiler of ours.

    python benchmarks/cuda/on_device.py FOLDER --out results.json [--seconds 220] [NAME ...]

FOLDER is what `libraries.py` or `products.py` wrote. First each library is run on arrays of the host and of the GPU, as
launches and as a CUDA graph, and compared with the results that are kept; then each is timed, as a CUDA graph between
arrays of the GPU: the median of the times between events around groups of runs. NVIDIA's driver is enough for both.
Where there is PyTorch, its times follow (`torch_peers.py`), and with --profiles those of nnefc's kernels.

After the given seconds nothing more is begun; the same command goes on with what is missing in the file, so that two
runs of less than four minutes do what one may not. `device_page.py` writes the page, next to the predicted times. The
packages of onnxruntime's CUDA and TensorRT providers and of cuDNN have gigabytes: they are peers only where they are
installed already, and none is timed here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from driver_clock import DriverClock, OnGpu
from inputs import EVERY, drawn

ROOT = Path(__file__).resolve().parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None

LIMITS = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}
"""What results may differ by from onnxruntime's in float32, over their largest value."""

Row = dict[str, Any]


def main() -> int:
    """Check and measure all, and write what was found after each; 1 if anything failed or is wrong, as the rows say."""
    parser = argparse.ArgumentParser(description="Check and time libraries on this machine's GPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=220)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--peers", default="eager")
    parser.add_argument("--loader", type=Path, default=ROOT / "compiler")
    given = parser.parse_intermixed_args()
    sys.path.append(str(given.loader))
    until = time.monotonic() + given.seconds
    names = given.names or sorted(position.parent.name for position in given.folder.glob("*/about.json"))
    with DriverClock() as clock:
        about = {**clock.about(), "torch": torch_version(), "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
        rows = known_rows(given.folder, names, given.out)
        for part, row, step in steps(rows, given, clock):
            if time.monotonic() > until:
                print("the time is over: run the same command again for the rest", flush=True)
                break
            try:
                row |= step()
            except Exception:
                row[f"{part} failed"] = traceback.format_exc()[-1500:]
            given.out.write_text(json.dumps({**about, "rows": list(rows.values())}))
            print(json.dumps({"name": row["name"], **{k: v for k, v in row.items() if k.startswith(part)}}), flush=True)
    wrong = [name for name, row in rows.items() if row.get("error", 0) > LIMITS[row["precision"]]]
    print(f"wrong results: {', '.join(wrong) or 'none'}")
    return int(bool(wrong) or any("failed" in key for row in rows.values() for key in row))


def known_rows(folder: Path, names: list[str], out: Path) -> dict[str, Row]:
    """Returns what is known of each library, with what an earlier run has found."""
    found = {row["name"]: row for row in json.loads(out.read_text())["rows"]} if out.exists() else {}
    rows = {}
    for name in names:
        about = json.loads((folder / name / "about.json").read_text())
        rows[name] = {key: about[key] for key in ("network", "batch", "precision", "seconds", "commit")} | {
            "name": name
        }
        rows[name] |= found.get(name, {})
    return rows


def steps(
    rows: dict[str, Row], given: argparse.Namespace, clock: DriverClock
) -> Iterator[tuple[str, Row, Callable[[], Row]]]:
    """Returns what is left to do: what it adds to a row, the row, and how it is done."""
    for name, row in rows.items():
        if "error" not in row:
            yield "error", row, lambda folder=given.folder / name: check(folder, clock)
    for name, row in rows.items():
        if "own" not in row:
            yield "own", row, lambda folder=given.folder / name: measure(folder, clock, given.profiles)
    if not HAS_TORCH:
        return
    from torch_peers import NETWORKS, PEERS

    for peer in filter(None, given.peers.split(",")):
        for row in rows.values():
            if peer not in row and row["network"] in NETWORKS:
                arguments = row["network"], row["batch"], row["precision"]
                yield peer, row, lambda peer=peer, arguments=arguments: {peer: PEERS[peer](*arguments)}


def torch_version() -> str:
    """The version of PyTorch; "none" where there is none."""
    if not HAS_TORCH:
        return "none"
    import torch

    return str(torch.__version__)


def check(folder: Path, clock: DriverClock) -> Row:
    """Returns the largest error of a library: on the host's arrays, and on the GPU's as launches and from a graph."""
    import loader

    wanted = dict(np.load(folder / "wanted.npz"))
    inputs = drawn(json.loads((folder / "about.json").read_text())["inputs"])
    errors = []
    with loader.load(folder / "network.so") as model:
        for _ in range(2):
            errors += [_error(array, wanted[name]) for name, array in model.run(inputs).items()]
        given, out = arrays(model, inputs, clock)
        for _ in range(3):
            model(*given, out=out, stream=clock.stream)
            model.synchronize()
            errors += [_error(o.numpy(), wanted[t.name]) for o, t in zip(out, model.outputs, strict=True)]
        for array in (*given, *out):
            array.free()
    return {"error": max(errors)}


def measure(folder: Path, clock: DriverClock, profiles: Path | None) -> Row:
    """Returns the times of a library: between the GPU's arrays, and between the host's; milliseconds."""
    import loader

    inputs = drawn(json.loads((folder / "about.json").read_text())["inputs"])
    with loader.load(folder / "network.so") as model:
        host = [_wall(lambda: model.run(inputs)) for _ in range(20)]
        given, out = arrays(model, inputs, clock)

        def run() -> None:
            model(*given, out=out, stream=clock.stream)

        milliseconds = clock.milliseconds(run)
        if profiles is not None and HAS_TORCH:
            from torch_peers import kernels

            profiles.mkdir(parents=True, exist_ok=True)
            (profiles / f"{folder.name}.json").write_text(json.dumps(kernels(run)))
        model.synchronize()
        for array in (*given, *out):
            array.free()
    return {"own": milliseconds, "own host": 1e3 * statistics.median(host)}


def arrays(model: Any, inputs: dict[str, np.ndarray], clock: DriverClock) -> tuple[list[OnGpu], list[OnGpu]]:
    """Returns a model's inputs, and memory for its outputs, on the GPU."""
    given = [OnGpu(clock, inputs[tensor.name]) for tensor in model.inputs]
    return given, [OnGpu(clock, np.full(tensor.shape, np.nan, tensor.dtype)) for tensor in model.outputs]


def _error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference from the results that are kept, over the largest value."""
    return float(np.abs(found[::EVERY].astype(np.float64) - wanted).max() / np.abs(wanted).max())


def _wall(run: Callable[[], Any]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
