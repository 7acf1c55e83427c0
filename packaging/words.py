"""Refuses words that the field has other terms for: `make lint` runs it.

    python packaging/words.py              says which lines have such words, and fails
    python packaging/words.py --count      how often each word occurs in each folder
    python packaging/words.py --update     lowers the limits in words.json, and writes the table in docs/glossary.md

A word is looked for in names, comments, docstrings, messages and pages alike: names are read as their parts, and a
phrase may continue on the next line. Some words are English as well: what `allowed` of a word matches does not count,
and a line that is right as it is ends with a comment that has `words: allowed`. Words that are being replaced have a
limit in words.json: how often they may still occur, which is only ever lowered.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GLOSSARY", "LIMITS", "WORDS", "Use", "Word", "found", "glossary", "limits", "main", "uses"]

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "packaging" / "words.json"
GLOSSARY = ROOT / "docs" / "glossary.md"
_BEGIN, _END = "<!-- words -->\n", "<!-- end of words -->\n"
_ESCAPE = "words: allowed"
_SUFFIXES = (".py", ".md", ".c", ".h", ".hpp", ".cpp", ".S", ".mjs", ".mts", ".toml", ".rst")
_ELSEWHERE = (
    "packaging/words.py",
    "docs/glossary.md",
    "tests/release/test_words.py",
    "tests/data/",
    "tests/fuzz/corpus/",
)
"""Files that have such words for a reason: this table, and what is written by others."""


@dataclass(frozen=True)
class Word:
    """A word that the field has another term for.

    Attributes:
        name: the word, as the glossary and words.json have it.
        pattern: regular expressions for its forms, with `|` between them; a space stands for what is between words.
        term: the field's term, or several.
        allowed: regular expressions for texts that may hold the word.
        refused: whether new uses are errors; words of ordinary English are in the glossary alone.
    """

    name: str
    pattern: str
    term: str
    allowed: tuple[str, ...] = ()
    refused: bool = True


_PYTHON = (
    r"response\.output_item\b|\bitem_id\b|\binput_items\b|\boutput_item\.",  # names of OpenAI's interface
    r"\.items?\(|\b(?:node|target)\.items\b",
    r"pytest\.Item\b",
    r"def pytest_\w+\(.*",
    r"list-item|item_separator|align-items|\[dict-item\]",
    r"['\"]items?['\"]",
    "TupleGetItem|CompletionItem|from_items|functions_items|PUT_0_ITEMS",
)
_AT_MOST = (
    r"(?i)(?:\b|_)at[\s_](?:least|most)\b|(?:\b|_)at_(?:least|most)(?=_|\b)",
    r"(?i)\b(?:least|most)[\s_-](?:recently|significant|squares|frequent)\b|most_common",
    r"(?i)\bmost[\s_-](?:likely|common|often|easily|probable)\b",
    r"\bgenerate\(\w+, most=",
    r"(?i)(?<!\bthe )\bmost[\s_](?:of|networks|models|modules|calls|runs|gaps|waits)\b",
    r"(?i)(?<!\bthe )\bmost[\s_](?:kernels|loads|readers|machines|graphs|layers)\b",
    r"atomic_uint_least\w+",
)
_IN_TWO = (
    r"(?i)\b(?:two|both|upper|lower|low|its|their)\s+halves\b",
    r"(?i)\bhalves[\s_]+(?:away|of words|of each|the|that|an|its)\b",
    r"__\w*half\w*",
)
_ROUNDING = (
    r"(?i)\brounds[\s_]+(?:to|as|by|once|in|it|its|reals|real|values|numbers|whole|rows|samples|halves|floats|vectors|the|what"
    r"|several|nothing|after|and|per|products|differently|otherwise|between|away)\b",
    r"instruction that rounds|which rounds|sum_rounds|it rounds",
)

WORDS = (
    Word("item", "items?", "element", _PYTHON),
    Word(
        "place",
        "places?",
        "index, position, coordinate; location in memory or in a model",
        (r"(?i)\bin[-\s_]?place", r"(?i)\blast[\s_]place", "[tT]akes? place|took place"),
    ),
    Word("least, most (bounds)", "least|most", "min, max; lower or upper bound", _AT_MOST),
    Word(
        "open size", "open sizes?|open dimensions?|open lengths?|open shapes?", "dynamic dimension, symbolic dimension"
    ),
    Word(
        "size that the data tell, counted", "only the data tells?|the data tells?|counted", "data-dependent dimension"
    ),
    Word("rest", "rest", "tail, remainder"),
    Word("told, said", "told|said", "callback; metadata, description"),
    Word("typical", "typical", "size hint", (r"\btypical_p\b", r"(?i)\btypical sampling\b")),
    Word("half float", "half floats?|halves", "fp16, bf16, 16-bit floats", _IN_TWO),
    Word("what is no number", "what is not a number|what is no number", "NaN"),
    Word("rounds", "rounds", "iterations, trip count", _ROUNDING),
    Word("plain", "plain", "reference; row-major (layout); portable (code)"),
    Word("widened", "widened", "sign-extended, zero-extended, converted, dequantized"),
    Word("truth value", "truth values?", "boolean; predicate (of a mask)"),
    Word("turned", "turned", "permuted (lanes, loads)"),
    Word("picture", "pictures?", "image"),
    Word("narrowing", "narrowing|narrowed", "refinement of a constraint; conversion to a smaller type"),
    Word("whole tile, whole vector", "whole tiles?|whole vectors?", "full tile, full vector"),
    Word("extreme", "extremes?", "min and max"),
    Word("anew", "anew", "again", ("['\"]anew['\"]",)),
    Word("mended", "mended", "fixed"),
    Word("harmless", "harmless", "safe"),
    Word("beside", "beside", "next to, compared with"),
    Word("nobody, whoever", "nobody|whoever|of which there are none", "no caller, the caller; empty"),
    Word("shared out", "shared out|shares? out|sharing out", "distributed, parallelized"),
    Word("face", "face", "interface, signature", ("(?i)hugging[ _]?face", "face[_ ](?:detect|landmark)")),
    Word("two digits", "two digits", "high and low byte"),
    Word("own sizes", "own sizes", "canonical dimensions"),
    Word("announced rounds", "announced rounds", "trip counts, as hints"),
    Word("added roundings", "added roundings", "rounding by a magic number"),
    Word("steps apart", "steps apart|results apart", "fusion barriers"),
    Word("hidden ends", "hidden ends", "opaque bounds"),
    Word("attention ends", "attention ends", "bounds of attention masks"),
    Word("refused constants", "refused constants", "opaque constants"),
    Word("known divisors", "known divisors", "division by reciprocal multiplication"),
    Word("cut loops", "cut loops", "loop partitioning, index-set splitting"),
    Word("rolled loops", "rolled loops", "loops with unrolling disabled"),
    Word("bound quotients", "bound quotients|bound offsets", "hoisted divisions, hoisted address computations"),
    Word("assembled tiles", "assembled tiles", "assembly microkernels"),
    Word("lane sums", "lane sums", "dot-accumulate"),
    Word("step (of a kernel)", "steps?", "block of TIR, stage, call of a kernel", refused=False),
    Word("level", "levels?", "ISA level", refused=False),
    Word("border (of a program)", "borders?", "boundary, API boundary", refused=False),
    Word("agree (of sizes)", "agree", "unify, unification", refused=False),
)


@dataclass(frozen=True)
class Use:
    """One word in one file.

    Attributes:
        file: its path.
        line: where the word begins, from 1.
        text: the line.
        word: which word it is.
    """

    file: str
    line: int
    text: str
    word: Word


def found(file: str, text: str) -> Iterator[Use]:
    """The words of a file's text, in the order of the table."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    lower = re.sub("[A-Z]+", lambda match: match[0].lower(), text)  # of the same length, unlike that of str.lower
    for word, starters, pattern in _PATTERNS:
        ats = sorted({at for starter in starters for at in _all(starter, lower)})
        matches = [match for at in ats if (match := pattern.match(text, at))]
        spans = [match.span() for allowed in word.allowed for match in re.finditer(allowed, text)] if matches else []
        for at in dict.fromkeys(match.start() for match in matches):
            line = bisect_right(starts, at) - 1
            if _ESCAPE not in lines[line] and not any(begin <= at < end for begin, end in spans):
                yield Use(file, line + 1, lines[line].strip(), word)


_BETWEEN = r"[\s_#/*]*"


def _compiled(word: Word) -> tuple[Word, tuple[str, ...], re.Pattern[str]]:
    """The word, what its forms begin with, and the pattern of a form at a position."""
    forms = word.pattern.replace(" ", _BETWEEN)
    starters = dict.fromkeys(re.match(r"\w+?(?=\w\?|\W|$)", form)[0] for form in word.pattern.split("|"))
    return word, tuple(starters), re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z0-9])(?=[A-Z]))(?i:{forms})(?![a-z])")


def _all(part: str, text: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


_PATTERNS = [_compiled(word) for word in WORDS if word.refused]


def uses(root: Path = ROOT) -> Iterator[Use]:
    """The words in the files that git knows, file by file."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout.decode()
    for file in sorted(listed.split("\0")):
        if file.endswith(_SUFFIXES) and not file.startswith(_ELSEWHERE) and (root / file).is_file():
            yield from found(file, (root / file).read_text(encoding="utf-8"))


def limits(path: Path = LIMITS) -> dict[str, int]:
    """How often each word may still occur."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def glossary() -> str:
    """The table of the words in docs/glossary.md."""
    rows = [f"| {word.name} | {word.term} |" for word in WORDS]
    return "\n".join(("| older word | term |", "|---|---|", *rows, ""))


def _too_many(counts: Mapping[str, int]) -> dict[str, int]:
    allowed = limits()
    return {name: number for name, number in counts.items() if number > allowed.get(name, 0)}


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    listed = list(uses())
    counts = Counter(use.word.name for use in listed)
    if arguments == ["--count"]:
        for word in (word for word in WORDS if word.refused):
            folders = Counter("/".join(use.file.split("/")[:2]) for use in listed if use.word == word)
            most = ", ".join(f"{folder} {number}" for folder, number in folders.most_common(4))
            print(f"{word.name:24} {counts[word.name]:5}  {most}")
        return 0
    if arguments == ["--update"]:
        before = limits() if LIMITS.exists() else {}
        kept = {name: min(number, before.get(name, number)) for name, number in sorted(counts.items())}
        LIMITS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        page = GLOSSARY.read_text(encoding="utf-8")
        head, _, tail = page.partition(_BEGIN)
        GLOSSARY.write_text(head + _BEGIN + glossary() + _END + tail.partition(_END)[2], encoding="utf-8")
        return 0
    wrong = _too_many(counts)
    changed = _changed_lines()
    for name, number in wrong.items():
        word = next(word for word in WORDS if word.name == name)
        of_word = [use for use in listed if use.word == word]
        new = [use for use in of_word if (use.file, use.line) in changed] or of_word
        for use in new[:20]:
            print(f"{use.file}:{use.line}: {name}: {use.text[:100]}")
        print(
            f"'{name}' occurs {number} times, {limits().get(name, 0)} are allowed: write {word.term}", file=sys.stderr
        )
    return 1 if wrong else 0


def _changed_lines() -> set[tuple[str, int]]:
    """The lines that differ from the last commit but one: where a new word probably is."""
    done = subprocess.run(["git", "diff", "-U0", "HEAD~1"], cwd=ROOT, check=False, capture_output=True)
    lines, file = set[tuple[str, int]](), ""
    for line in done.stdout.decode(errors="replace").split("\n"):
        if line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            lines |= {(file, int(match[1]) + n) for n in range(int(match[2] or 1))}
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
