"""Inputs for fuzzing the PNNX front end: param and bin files, and expressions.

A network is the length of its param file in four bytes, that file, and the bin file; seeds are those of the tests,
single operators of them between other shapes, and generated expressions.
"""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

from nnefc.driver.formats import load_network
from nnefc.frontends.pnnx import describe_expression
from nnefc.frontends.pnnx.functions import FUNCTIONS

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = ["nnefc.frontends.pnnx"]
DATA = Path(__file__).parents[2] / "data" / "pnnx"
LARGEST = 30_000  # bytes of the networks that are changed
NO_WEIGHTS = b"PK\5\6" + bytes(18)  # an archive of no files


def network(content: bytes, folder: Path) -> None:
    """A param file with its bin file, down to Relax."""
    length = int.from_bytes(content[:4], "little")
    path = folder / "model.pnnx.param"
    path.write_bytes(content[4 : 4 + length])
    (folder / "model.pnnx.bin").write_bytes(content[4 + length :])
    load_network(path)


def expression(content: bytes, folder: Path) -> None:
    """An expression, described as the tables of the documentation do."""
    describe_expression(content.decode("latin1"))


TARGETS = {b"P": network, b"E": expression}


def seeds() -> list[bytes]:
    """Valid inputs, and expressions most of which are."""
    random = Random(0)
    files = [
        (path.read_bytes(), path.with_suffix(".bin").read_bytes())
        for path in sorted(DATA.glob("*.pnnx.param"))
        if path.with_suffix(".bin").stat().st_size < LARGEST
    ]
    networks = [_packed(text, data) for text, data in files if len(text) < LARGEST]
    lines = sorted({line for text, _ in files for line in text.decode().split("\n")[2:] if line})
    networks += [_packed(_single(line, random).encode(), NO_WEIGHTS) for line in lines]
    texts = [_expression(random, 1 + number % 5) for number in range(60)]
    networks += [_packed(_of_expression(text, random).encode(), NO_WEIGHTS) for text in texts]
    return [*networks, *(b"E" + text.encode() for text in texts)]


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A neighbour of an input, of the same kind; sometimes a new one."""
    kind, content = data[:1], data[1:]
    if kind == b"E":
        text = _expression(random, random.randint(0, 7)) if random.random() < 0.5 else content.decode("latin1")
        return b"E" + _damaged(text, random).encode("latin1", "replace")
    if random.random() < 0.2:
        return _packed(_of_expression(_damaged(_expression(random, 3), random), random).encode(), NO_WEIGHTS)
    length = int.from_bytes(content[:4], "little")
    text, values = content[4 : 4 + length].decode("latin1"), content[4 + length :]
    lines = [line for line in text.split("\n")[2:] if line and not line.startswith("pnnx.")]
    if lines and random.random() < 0.3:
        text = _single(random.choice(lines), random)
    if random.random() < 0.9:
        text = _mutated_text(text, random)
    if values and random.random() < 0.3:
        values = _mutated_bytes(values, random)
    return _packed(text.encode("latin1", "replace"), values)


def _packed(text: bytes, data: bytes) -> bytes:
    return b"P" + struct.pack("<I", len(text)) + text + data


INTERESTING = [
    "-1", "0", "1", "2147483647", "-2147483648", "9223372036854775807", "99999999999999999999", "1e400", "nan", "inf",
    "None", "True", "()", "(0)", "(-1,-1)", "(1,2,3,4,5,6,7,8)", "?", "@0", "[@0]", "[", ")",
    "x" * 300, "é", "\x00", "%",
]  # fmt: skip


def _mutated_text(text: str, random: Random) -> str:
    """Some changes of characters, words and lines."""
    for _ in range(random.randint(1, 4)):
        words = text.split(" ")
        index = random.randrange(len(words))
        match random.randrange(9):
            case 0:
                words[index] = random.choice(INTERESTING)
            case 1 if "=" in words[index]:
                words[index] = words[index].partition("=")[0] + "=" + random.choice(INTERESTING)
            case 2:
                del words[index]
            case 3:
                words.insert(index, random.choice(words))
            case 4 if words[index]:
                i = random.randrange(len(words[index]))
                words[index] = words[index][:i] + random.choice("0123456789-.,()[]=@#$?eE") + words[index][i + 1 :]
            case 5:
                lines = text.split("\n")
                lines.insert(random.randrange(len(lines)), random.choice(lines))
                words = "\n".join(lines).split(" ")
            case 6:
                lines = text.split("\n")
                del lines[random.randrange(len(lines))]
                words = "\n".join(lines).split(" ")
            case 7:
                digits = [i for i, word in enumerate(words) if any(c.isdigit() for c in word)]
                if digits:
                    i = random.choice(digits)
                    words[i] = "".join(random.choice("0123456789") if c.isdigit() else c for c in words[i])
            case 8:
                other = random.randrange(len(words))
                words[index], words[other] = words[other], words[index]
        text = " ".join(words)
    return text


def _mutated_bytes(data: bytes, random: Random) -> bytes:
    """Some changes of bytes, mostly in the directory at the end."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 6)):
        if not changed:
            break
        offset = (
            random.randrange(len(changed))
            if random.random() < 0.3
            else max(0, len(changed) - 1 - random.randrange(400))
        )
        match random.randrange(4):
            case 0:
                changed[offset] = random.randrange(256)
            case 1:
                changed[offset : offset + 4] = random.choice([b"\xff" * 4, b"\0" * 4, b"\1\0\0\0", b"\xff\xff\xff\x7f"])
            case 2:
                del changed[offset : offset + random.randint(1, 50)]
            case 3:
                changed[offset:offset] = random.randbytes(random.randint(1, 30))
    return bytes(changed)


def _expression(random: Random, depth: int) -> str:
    """A random expression of the operands @0 to @2."""
    if depth == 0 or random.random() < 0.15:
        return random.choice(["@0", "@1", "@2", "1", "-2.5", "1e-3", "True", "inf", "0", "7", "size(@0,1)", "None"])
    if random.random() < 0.05:
        return "[" + ",".join(_expression(random, depth - 1) for _ in range(random.randint(0, 3))) + "]"
    name = random.choice(list(FUNCTIONS))
    count = random.randint(FUNCTIONS[name].fewest, FUNCTIONS[name].maximum)
    return f"{name}({','.join(_expression(random, depth - 1) for _ in range(count))})"


def _damaged(text: str, random: Random) -> str:
    """The same with some characters replaced."""
    for _ in range(random.choice([0, 1, 1, 2])):
        i = random.randrange(len(text) + 1)
        text = text[:i] + random.choice("(),[]@0-e. \t{é") + text[i + random.randint(0, 2) :]
    return text


def _single(line: str, random: Random) -> str:
    """Inputs of random shapes, one operator, and its outputs."""
    words = line.split()
    if len(words) < 4 or not (words[2].isdecimal() and words[3].isdecimal()):
        return line
    inputs, outputs = int(words[2]) % 16, int(words[3]) % 16
    if len(words) < 4 + inputs + outputs:
        return line
    lines = []
    for i in range(inputs):
        shape = ",".join(str(random.choice([1, 1, 2, 3, 4, 5, 6, 8, 9])) for _ in range(random.randint(0, 5)))
        own = [w for w in words if w.startswith(f"#{words[4 + i]}=(")]
        if own and random.random() < 0.7:
            type_ = own[0].partition("=")[2]
        else:
            type_ = f"({shape}){random.choice(['f32', 'f32', 'i64', 'bool', 'f16'])}"
        lines.append(f"pnnx.Input in{i} 0 1 a{i} #a{i}={type_}")
    tail = [w for w in words[4 + inputs + outputs :] if not w.startswith("#")]
    renamed = {words[4 + i]: f"a{i}" for i in range(inputs)}
    tail = [f"{w.partition('=')[0]}={renamed.get(w.partition('=')[2], '')}" if w[0] == "$" else w for w in tail]
    operands = [f"a{i}" for i in range(inputs)] + [f"b{i}" for i in range(outputs)]
    lines.append(" ".join([words[0], words[1], str(inputs), str(outputs), *operands, *tail]))
    lines += [f"pnnx.Output out{i} 1 0 b{i}" for i in range(outputs)]
    return "\n".join(["7767517", f"{len(lines)} {inputs + outputs}", *lines])


def _of_expression(text: str, random: Random) -> str:
    """A network of one expression."""
    shapes = [
        random.choice(["(2,3)f32", "(3)f32", "(2,1)i64", "()f32", "(2,3)bool", "(1,3)u8", "(3)f16"]) for _ in range(3)
    ]
    lines = [f"pnnx.Input in{i} 0 1 {i} #{i}={shape}" for i, shape in enumerate(shapes)]
    lines += [f"pnnx.Expression e 3 1 0 1 2 3 expr={''.join(text.split()) or '@0'}", "pnnx.Output out 1 0 3"]
    return "\n".join(["7767517", "5 4", *lines])
