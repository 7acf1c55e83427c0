"""The page of what `on_device.py` measured on a GPU.

    python benchmarks/cuda/device_page.py RESULTS.json ...

writes results/cuda_on_device.md, next to what `gpu_report.py` predicts for the same networks on an H100. Of a network
in several files, the first has nnefc's time, and each the time of its peer.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from conditions import RESULTS, Conditions, write_page  # noqa: E402
from report import table  # noqa: E402

TITLE = "Networks on a GPU, compared with PyTorch"
NETWORKS = ("resnet50", "mobilenet_v2", "bert_base", "vit_b16", "squeezenet", "unet", "lstm")
_PEERS = {"eager": "PyTorch", "compile": "torch.compile", "cuda": "onnxruntime", "tensorrt": "TensorRT"}
_ONNXRUNTIME = (
    "onnxruntime runs the same files by its providers CUDA, in `fp16` with tensors converted to float16, and TensorRT,",
    "as CUDA graphs between arrays of the GPU, timed by the host around groups of runs.",
)


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(results: tuple[Path, ...]) -> None:
    """Write the page of RESULTS, which `on_device.py --out` wrote."""
    files = [json.loads(path.read_text()) for path in results]
    found, rows = files[0], {row["name"]: row for row in files[0]["rows"]}
    for row in (row for file in files[1:] for row in file["rows"]):
        rows[row["name"]] = row | rows.get(row["name"], {})
    commits = {row["commit"] for row in rows.values()}
    if len(commits) != 1:
        raise click.ClickException(f"the libraries are of several commits: {', '.join(sorted(commits))}")
    machine = f"1 × {found['device']} (CUDA {found['cuda']}), PyTorch {found['torch']}"
    write_page(
        "cuda_on_device", TITLE, Conditions(f"{found['date']} UTC", *commits, machine), body(list(rows.values()))
    )


def body(rows: list[dict[str, Any]]) -> list[str]:
    """The lines of the page."""
    peers = {peer: name for peer, name in _PEERS.items() if any(peer in row for row in rows)}
    predicted = predictions((RESULTS / "cuda_roofline.md").read_text())
    cells, ratios = [], []
    for row in rows:
        own = row.get("own")
        ratios += [row["eager"] / own] if own and "eager" in row else []
        cells.append(
            [
                *(f"`{row['network']}`", str(row["batch"]), row["precision"], _spelled(own)),
                *(_spelled(row.get(peer)) for peer in peers),
                *(f"{row[peer] / own:.2f}" if own and peer in row else "" for peer in peers),
                _spelled(predicted.get(f"{row['network']}*{row['batch']}") if row["precision"] == "fp16" else None),
                f"{row['error']:.1e}" if "error" in row else "failed",
            ]
        )
    head = ["network", "batch", "precision", "nnefc", *peers.values(), *(["ratio"] * len(peers)), "predicted", "error"]
    lines = [
        "Milliseconds of a run between arrays of the GPU, as a CUDA graph, compiled on a machine without a GPU for",
        "sm_90: the median of groups of runs between events. PyTorch's networks have the same structure, are channels",
        "last, have the convolutions that cuDNN found to be fastest, and run as a CUDA graph, too.",
        *(_ONNXRUNTIME if "cuda" in peers or "tensorrt" in peers else ()),
        "*Ratio*: the peer's time over nnefc's, in the order of the peers: above 1 nnefc is faster.",
        "*Predicted*: for an H100, by [the roofline model](cuda_roofline.md). *Error*: the largest difference from",
        "onnxruntime's results in float32 over the largest value. Weights are random.",
        "",
        *table(head, cells),
        "",
    ]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"Geometric mean of the ratios to PyTorch: {mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f}).")
    return lines


def predictions(page: str) -> Mapping[str, float]:
    """Milliseconds on an H100 by network and batch, as a page of `gpu_report.py` has them."""
    rows = ([cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| "))
    return {row[1]: float(row[5]) for row in rows if len(row) > 6 and row[2] == "h100"}


def _spelled(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.3f}"


if __name__ == "__main__":
    main()
