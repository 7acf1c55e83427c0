"""Feeds malformed PNNX files to the front end: `python tests/fuzz/pnnx_fuzz.py SECONDS [SEED]`.

Starts from the files of the tests and from generated expressions, changes them at random, and demands one of two
results, soon: a network, or a `CompileError`. What does anything else is written to `pnnx-found-N.txt` beside the
caller. Bound the memory from outside: `ulimit -v`.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from nnefc.diagnostics import CompileError
from nnefc.formats import load_network
from nnefc.frontends.pnnx import describe_expression
from nnefc.frontends.pnnx.functions import FUNCTIONS

DATA = Path(__file__).parents[1] / "data" / "pnnx"
SLOW = 30.0  # seconds for one input
LARGEST = 60  # lines of the networks that are changed

INTERESTING = [
    "-1", "0", "1", "2147483647", "-2147483648", "9223372036854775807", "99999999999999999999", "1e400", "nan", "inf",
    "None", "True", "()", "(0)", "(-1,-1)", "(1,2,3,4,5,6,7,8)", "?", "@0", "[@0]", "[", ")",
    "x" * 300, "é", "\x00", "%",
]  # fmt: skip


def mutated_text(text: str, rng: random.Random) -> str:
    """Some changes of characters, words and lines."""
    for _ in range(rng.randint(1, 4)):
        words = text.split(" ")
        place = rng.randrange(len(words))
        match rng.randrange(9):
            case 0:
                words[place] = rng.choice(INTERESTING)
            case 1 if "=" in words[place]:
                words[place] = words[place].partition("=")[0] + "=" + rng.choice(INTERESTING)
            case 2:
                del words[place]
            case 3:
                words.insert(place, rng.choice(words))
            case 4 if words[place]:
                i = rng.randrange(len(words[place]))
                words[place] = words[place][:i] + rng.choice("0123456789-.,()[]=@#$?eE") + words[place][i + 1 :]
            case 5:
                lines = text.split("\n")
                lines.insert(rng.randrange(len(lines)), rng.choice(lines))
                words = "\n".join(lines).split(" ")
            case 6:
                lines = text.split("\n")
                del lines[rng.randrange(len(lines))]
                words = "\n".join(lines).split(" ")
            case 7:
                digits = [i for i, word in enumerate(words) if any(c.isdigit() for c in word)]
                if digits:
                    i = rng.choice(digits)
                    words[i] = "".join(rng.choice("0123456789") if c.isdigit() else c for c in words[i])
            case 8:
                other = rng.randrange(len(words))
                words[place], words[other] = words[other], words[place]
        text = " ".join(words)
    return text


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some changes of bytes, mostly in the directory at the end."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        if not changed:
            break
        place = rng.randrange(len(changed)) if rng.random() < 0.3 else max(0, len(changed) - 1 - rng.randrange(400))
        match rng.randrange(4):
            case 0:
                changed[place] = rng.randrange(256)
            case 1:
                changed[place : place + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\1\0\0\0", b"\xff\xff\xff\x7f"])
            case 2:
                del changed[place : place + rng.randint(1, 50)]
            case 3:
                changed[place:place] = rng.randbytes(rng.randint(1, 30))
    return bytes(changed)


def expression(rng: random.Random, depth: int) -> str:
    """A random expression of the operands @0 to @2."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(["@0", "@1", "@2", "1", "-2.5", "1e-3", "True", "inf", "0", "7", "size(@0,1)", "None"])
    if rng.random() < 0.05:
        return "[" + ",".join(expression(rng, depth - 1) for _ in range(rng.randint(0, 3))) + "]"
    name = rng.choice(list(FUNCTIONS))
    count = rng.randint(FUNCTIONS[name].fewest, FUNCTIONS[name].most)
    return f"{name}({','.join(expression(rng, depth - 1) for _ in range(count))})"


def damaged_expression(rng: random.Random) -> str:
    text = expression(rng, rng.randint(0, 7))
    for _ in range(rng.choice([0, 0, 1, 2])):
        i = rng.randrange(len(text) + 1)
        text = text[:i] + rng.choice("(),[]@0-e. \t{é") + text[i + rng.randint(0, 2) :]
    return text


class Fuzzer:
    """The inputs and what became of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.networks = [
            (p.read_text(), p.with_suffix(".bin").read_bytes())
            for p in sorted(DATA.glob("*.pnnx.param"))
            if p.with_suffix(".bin").stat().st_size < 300_000
        ]
        self.lines = [line for text, _ in self.networks for line in text.split("\n")[2:] if line]
        self.folder = Path(tempfile.mkdtemp())
        self.counts = {"accepted": 0, "refused": 0, "found": 0}
        self.slowest = 0.0

    def network(self) -> Callable[[], object]:
        """One of the test's networks, changed; or one operator of them between inputs of other shapes."""
        rng = self.rng
        text, data = rng.choice(self.networks)
        text = self.single() if rng.random() < 0.7 else mutated_text(text, rng)
        if rng.random() < 0.2:
            data = mutated_bytes(data, rng)
        return self.files(text, data)

    def single(self) -> str:
        """Inputs of random shapes, one operator of the corpus, changed, and its outputs."""
        rng = self.rng
        words = rng.choice(self.lines).split()
        inputs, outputs = int(words[2]), int(words[3])
        lines = []
        for i in range(inputs):
            shape = ",".join(str(rng.choice([1, 1, 2, 3, 4, 5, 6, 8, 9])) for _ in range(rng.randint(0, 5)))
            own = [w for w in words if w.startswith(f"#{words[4 + i]}=(")]
            type_ = (
                own[0].partition("=")[2]
                if own and rng.random() < 0.7
                else f"({shape}){rng.choice(['f32', 'f32', 'i64', 'bool', 'f16'])}"
            )
            lines.append(f"pnnx.Input in{i} 0 1 a{i} #a{i}={type_}")
        rest = [w for w in words[4 + inputs + outputs :] if not w.startswith("#")]
        renamed = {words[4 + i]: f"a{i}" for i in range(inputs)}
        rest = [f"{w.partition('=')[0]}={renamed.get(w.partition('=')[2], '')}" if w[0] == "$" else w for w in rest]
        operands = [f"a{i}" for i in range(inputs)] + [f"b{i}" for i in range(outputs)]
        lines.append(" ".join([words[0], words[1], words[2], words[3], *operands, *rest]))
        lines += [f"pnnx.Output out{i} 1 0 b{i}" for i in range(outputs)]
        if rng.random() < 0.75:
            lines[inputs] = mutated_text(lines[inputs], rng)
        return "\n".join(["7767517", f"{len(lines)} {inputs + outputs}", *lines])

    def expression_network(self) -> Callable[[], object]:
        text = "".join(damaged_expression(self.rng).split()) or "@0"
        shapes = [
            self.rng.choice(["(2,3)f32", "(3)f32", "(2,1)i64", "()f32", "(2,3)bool", "(1,3)u8", "(3)f16"])
            for _ in range(3)
        ]
        lines = [f"pnnx.Input in{i} 0 1 {i} #{i}={shape}" for i, shape in enumerate(shapes)]
        lines += [f"pnnx.Expression e 3 1 0 1 2 3 expr={text}", "pnnx.Output out 1 0 3"]
        return self.files("\n".join(["7767517", "5 4", *lines]), b"")

    def files(self, text: str, data: bytes) -> Callable[[], object]:
        path = self.folder / "model.pnnx.param"
        path.write_text(text, errors="surrogatepass")
        (self.folder / "model.pnnx.bin").write_bytes(data)
        self.last: object = (text, data)
        return lambda: load_network(path)

    def described(self) -> Callable[[], object]:
        text = damaged_expression(self.rng)
        self.last = text
        return lambda: describe_expression(text)

    def step(self) -> None:
        action = self.rng.choices([self.network, self.expression_network, self.described], [5, 3, 2])[0]()
        start = time.monotonic()
        try:
            action()
            self.counts["accepted"] += 1
        except CompileError as error:
            assert str(error)
            self.counts["refused"] += 1
        except Exception:
            self.report(traceback.format_exc())
        took = time.monotonic() - start
        self.slowest = max(self.slowest, took)
        if took > SLOW:
            self.report(f"took {took:.1f} s")

    def report(self, what: str) -> None:
        self.counts["found"] += 1
        if self.counts["found"] <= 40:
            Path(f"pnnx-found-{self.counts['found']}.txt").write_text(f"{what}\n\n{self.last!r}\n")
        print(what.strip().splitlines()[-1][:200], flush=True)


def main() -> None:
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    fuzzer = Fuzzer(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        fuzzer.step()
    print(f"{fuzzer.counts}, the slowest input took {fuzzer.slowest:.1f} s")


if __name__ == "__main__":
    main()
