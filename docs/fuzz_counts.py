"""Writes what fuzzers tried into docs/what-works.md, and what random networks found into docs/findings.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
FUZZ = TESTS / "fuzz"
sys.path += [str(part) for part in (TESTS / "helpers", TESTS / "targets", FUZZ, FUZZ / "graphs")]

from onnx_operators import operators_table  # noqa: E402
from record import RECORD, Record  # noqa: E402
from ways import WAYS  # noqa: E402

__all__ = ["FINDINGS", "PAGE", "findings", "page"]

PAGE = HERE / "what-works.md"
FINDINGS = HERE / "findings.md"
_BEGIN, _END = "<!-- tried -->\n", "<!-- end of tried -->\n"
_READERS = {
    "nnef": "documents of three dialects, archives, tensor files, `graph.quant`",
    "onnx": "models",
    "pnnx": "param and bin files, expressions",
    "library": "libraries' headers and records, signatures, keys, weights files, encrypted too, targets",
    "language_model": "files of GGUF, folders with safetensors, quantized too, modules of sentence-transformers",
    "tokenizer": "`tokenizer.json` and the files next to it, vocabularies in GGUF, chat templates",
}


_READERS_TEXT = (
    "    python tests/fuzz/readers --minutes 10        # all, or some of those below",
    "",
    "Every reader of files treats them as hostile. The fuzzer mutates valid inputs by the structure of their format",
    "and, with `atheris` installed, keeps those that reach new code. A reader may refuse an input with an error, in",
    "little time and memory; everything else is a finding. Minutes are those of later runs: the first runs did not",
    "record them.",
    "",
)
_GRAPHS_TEXT = (
    "    make fuzz MINUTES=60",
    "",
    "Graphs of ONNX's operators with random attributes, types and shapes, tensors without elements among them, and",
    "sequences, optional values and strings between tensors, of the operator sets 13 to 28, compared with float64",
    "within bounds that follow from each graph. Floats are float32, float16, bfloat16 or float64, and products may",
    "be of bfloat16 or float16. Several graphs are one library; one that is wrong is halved. Where inputs hold",
    "special values (NaN, infinities, zeros of both signs), results must be of the same kind (NaN, infinity, sign)",
    "as those of float64 or onnxruntime.",
    "",
)


def _readers(record: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| reader | reads | inputs tried | minutes | findings, fixed |", "|---|---|---|---|---|")
    for name, reads in _READERS.items():
        counts = record["readers"][name]
        yield f"| `{name}` | {reads} | {counts['inputs']:,} | {counts.get('minutes', 0):,} | {counts['found']:,} |"


def _graphs(record: Record) -> Iterator[str]:
    ways, nodes = record["graphs"], record["nodes"]
    graphs, runs, resized, refused, stopped, doubtful, states, ended = (
        record.total("graphs", what)
        for what in ("graphs", "runs", "of other sizes", "refused", "not run", "doubtful", "states", "ended the peer")
    )
    each = sum(nodes.values()) / max(graphs, 1)
    yield f"{graphs:,} graphs of {sum(nodes.values()):,} nodes, {each:.1f} each, of {len(nodes)} operators."
    untried = _untried(nodes)
    if untried:
        yield f"No graph has {len(untried)} others: {', '.join(untried)}."
    yield f"{runs:,} runs: with one thread and with three, once where another machine or a GPU is emulated (\\*),"
    yield "and those of reproducible libraries for two kinds of processors, with the same bits."
    if resized:
        yield f"{resized:,} of them are of graphs that had run before, in the same library with other sizes of inputs."
    yield f"{refused:,} were refused: NNEF has no operation for them, a result has no known size, or operators"
    yield "need a relation between dynamic or data-dependent dimensions, such as that they are equal or multiples of a"
    yield "number."
    if stopped:
        yield f"{stopped:,} were not run: the emulator ended with an error of its own."
    if doubtful:
        yield f"In {doubtful:,} onnxruntime agrees with the library against ONNX's reference."
    if states:
        yield f"{states:,} inputs were states, which outputs update in three runs one after the other."
    if ended:
        yield f"{ended:,} ended onnxruntime's process when it was asked for its results."
    yield from _asked(record)
    yield from _left_dynamic(record)
    yield "Every other difference was fixed ([findings](findings.md)); the smallest graphs that show them are in"
    yield "`tests/fuzz/corpus`."
    yield ""
    yield from ("| compiled | graphs | of these refused | runs |", "|---|---|---|---|")
    for name, counts in sorted(ways.items()):
        mark = " \\*" if name in WAYS and WAYS[name].is_emulated else ""
        own = counts["graphs"] - counts.get("without dynamic sizes", 0)
        yield f"| {name}{mark} | {own:,} | {counts['refused']:,} | {counts['runs']:,} |"
    validated = sum(record["validated"].values())
    if validated:
        yield from ("", f"Results after {validated:,} passes and kernel passes were computed, and were correct.")


def _untried(nodes: Mapping[str, int]) -> list[str]:
    """Returns the operators of the library that no graph has."""
    rows = re.findall(r"^\| (\w+)(?: \(([\w.]+)\))? \|", operators_table(), re.MULTILINE)[1:]
    standard = {name for name, domain in rows if not domain}
    named = {f"{domain}.{name}" if domain and name in standard else name: name for name, domain in rows}
    return [f"`{name}`" for key, name in named.items() if key not in nodes]


def _asked(record: Record) -> Iterator[str]:
    """Says which share of the results is not compared, where that is known."""
    elements, spared, graphs = (record.total("graphs", what) for what in ("elements", "not asked", "not judged"))
    if elements:
        yield (
            f"Of {elements:,} elements of results, {spared / elements:.2%} are not compared, because "
            f"roundings or comparisons"
        )
        yield (
            f"before them may change them, nor is any element of {graphs:,} graphs."
            if graphs
            else "before them may change them."
        )


def _left_dynamic(record: Record) -> Iterator[str]:
    """Says how many of the sizes that were drawn to be dynamic stayed so, where that is known."""
    sizes, closed, without = (record.total("graphs", what) for what in ("sizes", "closed", "without dynamic sizes"))
    if sizes:
        yield f"Of {sizes:,} sizes of inputs that were drawn to be dynamic, {closed:,} were made constants again, for"
        yield f"operators constrain them. {without:,} graphs had no dynamic dimension then, and are not in the table."


def _runtime(record: Mapping[str, Any]) -> Iterator[str]:
    counts, states = record["runtime"], record["states"]
    yield f"{', '.join(f'{count:,} {what}' for what, count in counts.items())}: no failure."
    if record.get("stressed"):
        minutes = record["stressed"]["minutes"]
        yield f"They took {minutes:,} minutes, summed over up to eleven processes that share two processors; the"
        yield "first runs did not record theirs."
    yield f"The protocol of its threads in every interleaving: {sum(states.values()):,} states."


def page() -> str:
    """Returns the text of the page, with the sections of this record."""
    record = Record.of(RECORD)
    sections = {
        "Fuzzed readers": (*_READERS_TEXT, *_readers(record)),
        "Random networks": (*_GRAPHS_TEXT, *_graphs(record)),
        "The runtime under stress": ("    make stress MINUTES=60", "", *_runtime(record)),
    }
    before, _, tail = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = tail.partition(_END)
    body = "\n\n".join(f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items())
    return f"{before}{_BEGIN}{body}\n{_END}{after}"


_FINDINGS_HEAD = (
    "# Findings of random networks",
    "",
    "Each row is a defect that [random networks](what-works.md#random-networks) (`make fuzz`) found, and that is",
    "fixed. The second column names the configuration that showed it. The smallest graph for each is a file in",
    "`tests/fuzz/corpus`, whose first line is the text of the row. `python docs/fuzz_counts.py` writes this page.",
    "",
    "| found and fixed | compiled |",
    "|---|---|",
)


def findings() -> str:
    """Returns the text of the page of findings: a row for each file of the corpus."""
    rows = []
    for path in sorted((FUZZ / "corpus").glob("*.txt")):
        what, way, *_ = path.read_text(encoding="utf-8").splitlines()
        rows.append(f"| {what.removeprefix('# ')} | {way.removeprefix('# way: ')} |")
    return "\n".join([*_FINDINGS_HEAD, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    FINDINGS.write_text(findings(), encoding="utf-8")
