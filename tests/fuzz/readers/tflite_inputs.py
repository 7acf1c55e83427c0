"""Inputs for fuzzing the TFLite front end: a model of one operator each, and changed ones."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

TESTS = Path(__file__).parents[2]
sys.path += [str(TESTS / "helpers"), str(TESTS / "frontends" / "tflite")]

from tflite_cases import FAMILIES  # noqa: E402
from tflite_files import model_file  # noqa: E402
from tflite_models import family_model  # noqa: E402

from nnefc.driver.formats import load_network  # noqa: E402

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = ["nnefc.frontends.tflite"]
BYTES = (0, 1, 2, 4, 127, 128, 255)
FIRST = 8  # the identifier is kept


def network(content: bytes, folder: Path) -> None:
    """A file, down to Relax."""
    path = folder / "model.tflite"
    path.write_bytes(content)
    load_network(path)


TARGETS = {b"F": network}


def seeds() -> list[bytes]:
    """Valid models: those of the tests of operators."""
    cases = [case for family in FAMILIES.values() for case in family]
    return [b"F" + model_file(family_model([case])[0]) for case in cases]


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A neighbour of an input: a few bytes are others, or the end is missing or that of another one."""
    content = bytearray(data[1:])
    if random.random() < 0.1 and len(content) > FIRST:
        content = content[: random.randrange(FIRST, len(content))]
    if random.random() < 0.1:
        other = random.choice(corpus)
        content = content[: random.randrange(FIRST, len(content) + 1)] + other[random.randrange(1, len(other)) :]
    for _ in range(random.randrange(1, 5)):
        if len(content) > FIRST:
            content[random.randrange(FIRST, len(content))] = random.choice((*BYTES, random.randrange(256)))
    return data[:1] + bytes(content)
