"""Results, then times of libraries on a GPU, for a machine that has a GPU, NumPy and no compiler of ours.

    python benchmarks/cuda/on_device.py FOLDER --out results.json [--seconds 220] [NAME ...]

FOLDER is what `libraries.py` or `products.py` wrote. First each library is run on arrays of the host and of the GPU, as
launches and as a CUDA graph, and compared with the results that are kept; then each is timed, as a CUDA graph between
arrays of the GPU: the median of the times between events around groups of runs. NVIDIA's driver is enough for both.
With --profiles the times of kernels follow, which need PyTorch, then those of --peers: `eager` and `compile` are
PyTorch (`torch_peers.py`), `cuda` and `tensorrt` onnxruntime's providers (`onnxruntime_peers.py`). Peers whose packages
are absent are named and left out.

A process of its own does the steps (`device_steps.py`), because an error in a kernel ends all that a process does on a
GPU, and a barrier that is never complete ends nothing: after an error, or --limit seconds, another process goes on with
the next step. The file is written after each step. After --seconds nothing more is begun, and what runs is ended; the
same command goes on with what is missing, so that two runs of less than four minutes do what one may not. What has
failed is tried again at the end of the next run. `device_page.py` writes the page, next to the predicted times.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from device_steps import FAILED, Row, serve

ROOT = Path(__file__).resolve().parents[2]

LIMITS = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1, "int8": 1e-1}
"""What results may differ by from onnxruntime's (in float32, or of the same integers), over their largest value."""

PYTORCH = {
    **dict.fromkeys(
        ("resnet50", "mobilenet_v2", "efficientnet_b0", "squeezenet", "densenet121", "vit_b16"), "torchvision"
    ),
    "bert_base": "transformers",
    "lstm": "torch",
}
"""Networks that PyTorch has too, and the package that they come from."""

PEERS = ("eager", "compile", "cuda", "tensorrt")
_FACTS = ("network", "batch", "precision", "seconds", "commit")
"""What a row has of `about.json`: a library that differs in one of them is another one."""


def main() -> int:
    """Check and measure all, and write what was found after each step.

    Returns:
        0; 1 if a step failed or a result is wrong, as the rows say; 2 without a GPU or libraries.
    """
    parser = argparse.ArgumentParser(description="Check and time libraries on this machine's GPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=220, help="the maximum of the whole run")
    parser.add_argument("--limit", type=float, default=30, help="the maximum seconds of a step")
    parser.add_argument("--profiles", type=Path, help="a folder for the times of kernels")
    parser.add_argument("--peers", default="eager", help=f"some of {','.join(PEERS)}")
    parser.add_argument("--loader", type=Path, default=ROOT / "compiler")
    given = parser.parse_intermixed_args()
    until = time.monotonic() + given.seconds
    names = given.names or sorted(path.parent.name for path in given.folder.glob("*/about.json"))
    if not names:
        return _stopped(f"{given.folder} has no libraries: libraries.py and products.py write them")
    if not (given.loader / "loader").is_dir():
        return _stopped(f"{given.loader} has no loader: --loader is the folder `compiler` of this project")
    profiles = given.profiles and given.profiles.resolve()
    worker = Worker(serve, given.folder.resolve(), given.loader.resolve(), profiles)
    try:
        about = {**worker.do("about", {}, given.limit), "torch": version("torch"), "date": _now()}
    except StepError as error:
        return _stopped(f"no GPU can be used: {error.last_line}")
    rows = known_rows(given.folder, names, given.out)
    todo = list(steps(rows, wanted_parts(given.peers, profiles)))
    done = 0
    for part, row in todo:
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            row |= worker.do(part, row, min(left, given.limit))
            row.pop(part + FAILED, None)
        except StepError as error:
            if error.is_late and left < given.limit:
                break  # the end of the run ended it: the next run does it
            row[part + FAILED] = str(error)
        done += 1
        write(given.out, {**about, "rows": list(rows.values())})
        print(json.dumps({"name": row["name"], **{k: v for k, v in row.items() if k.startswith(part)}}), flush=True)
    worker.close()
    return report(rows, len(todo) - done)


class StepError(Exception):
    """A step that failed.

    Attributes:
        is_late: whether it took longer than it may.
    """

    def __init__(self, message: str, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late

    @property
    def last_line(self) -> str:
        """The end of the message, which has the error of a traceback."""
        return str(self).strip().splitlines()[-1]


class Worker:
    """A process that does steps on the GPU, and another one after each that failed.

    Args:
        serve: what the process does: gets a connection, then `given`.
    """

    def __init__(self, serve: Callable[..., None], *given: Any) -> None:
        self._serve, self._given = serve, given
        self._process: BaseProcess | None = None
        self._steps: Connection | None = None

    def do(self, part: str, row: Row, seconds: float) -> Row:
        """Returns what a step adds to a row.

        Raises:
            StepError: it failed, ended the process, or took longer than `seconds`.
        """
        if self._process is None or self._steps is None:
            context = multiprocessing.get_context("spawn")
            self._steps, other = context.Pipe()
            self._process = context.Process(target=self._serve, args=(other, *self._given), daemon=True)
            self._process.start()
            other.close()
        try:
            self._steps.send((part, row))
            if not self._steps.poll(seconds):
                self._kill()
                raise StepError(f"took more than {seconds:.0f} s", is_late=True)
            found: Row | str = self._steps.recv()
        except (EOFError, OSError):
            raise StepError(f"the process ended with {self._kill()}") from None
        if isinstance(found, str):
            self._kill()
            raise StepError(found)
        return found

    def close(self) -> None:
        """Lets the process end by itself, which frees what it has on the GPU."""
        if self._process is not None and self._steps is not None:
            self._steps.close()
            self._process.join(5)
        self._kill()

    def _kill(self) -> int | None:
        """Ends the process; returns its exit code."""
        process, self._process, self._steps = self._process, None, None
        if process is None:
            return None
        process.join(0.5)
        process.kill()
        process.join(5)
        return process.exitcode


def known_rows(folder: Path, names: Sequence[str], out: Path) -> dict[str, Row]:
    """Returns what is known of each library: with what an earlier run has found, if that had the same library."""
    found = {row["name"]: row for row in json.loads(out.read_text())["rows"]} if out.exists() else {}
    rows = {}
    for name in names:
        about = json.loads((folder / name / "about.json").read_text())
        facts = {key: about[key] for key in _FACTS} | {"name": name}
        earlier = found.get(name, {})
        rows[name] = earlier if facts.items() <= earlier.items() else facts
    return rows


def wanted_parts(peers: str, profiles: Path | None) -> list[str]:
    """Returns the parts in their order, without those whose packages are absent, which are printed."""
    parts = ["error", "own", *(["profile"] if profiles is not None else []), *filter(None, peers.split(","))]
    needed = {
        "profile": "torch",
        "eager": "torch",
        "compile": "torch",
        "cuda": "onnxruntime",
        "tensorrt": "onnxruntime",
    }
    absent = {part: needed[part] for part in parts if part in needed and not has(needed[part])}
    for part, package in absent.items():
        print(f"{part} is left out: the package {package} is not installed", flush=True)
    return [part for part in parts if part not in absent]


def steps(rows: dict[str, Row], parts: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Returns what is left to do, part by part; last what has failed in an earlier run."""
    left = [(part, row) for part in parts for row in rows.values() if part not in row and _has_peer(part, row)]
    yield from (step for step in left if step[0] + FAILED not in step[1])
    yield from [step for step in left if step[0] + FAILED in step[1]]


def _has_peer(part: str, row: Row) -> bool:
    """Whether a part can be done for a library: PyTorch and onnxruntime have not all networks."""
    if part in ("eager", "compile"):
        return (
            row["precision"] in ("fp32", "tf32", "fp16") and row["network"] in PYTORCH and has(PYTORCH[row["network"]])
        )
    return True


def has(package: str) -> bool:
    """Whether a package is installed; does not import it, which takes seconds for some."""
    return importlib.util.find_spec(package) is not None


def version(package: str) -> str:
    """The version of a package; "none" where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def write(out: Path, found: Row) -> None:
    """Writes the file at once, so that it is whole whenever this process is ended."""
    new = out.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.replace(out)


def report(rows: dict[str, Row], left: int) -> int:
    """Prints what is wrong, failed and left; returns the exit code."""
    wrong = [name for name, row in rows.items() if not row.get("error", 0) <= LIMITS[row["precision"]]]
    failed = [
        f"{name} ({key.removesuffix(FAILED)})" for name, row in rows.items() for key in row if key.endswith(FAILED)
    ]
    checked = sum("error" in row for row in rows.values())
    print(f"{checked} of {len(rows)} libraries checked; wrong results: {', '.join(wrong) or 'none'}")
    print(f"failed: {', '.join(failed) or 'none'}")
    if left:
        print(f"the time is over: the same command goes on with the other {left} steps")
    return int(bool(wrong or failed))


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())


def _stopped(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
