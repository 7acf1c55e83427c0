"""How answers of networks are compared: classes, boxes and characters; and which form of a network a peer runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
from agreement import PRETRAINED
from peers.fastest_form import FastestForm
from pictures import line_of_text, scattered_digits


def positions(*boxes: tuple[int, float, float]) -> np.ndarray:
    """A detector's result with boxes of 32 × 32 at positions of its first grid: position, offset in pixels, score."""
    result = np.zeros((1, 52**2 + 26**2 + 13**2, 6), np.float32)
    for position, offset, score in boxes:
        result[0, position] = offset / 8, 0, np.log(4), np.log(4), score, 1
    return result


def test_boxes_are_the_same_where_they_overlap_by_half() -> None:
    same = PRETRAINED["ddddocr_det"].same
    wide = positions((52 * 10 + 10, 0, 0.9), (52 * 10 + 11, 0, 0.8), (52 * 30 + 30, 0, 0.7), (0, 0, 0.1))
    assert same(wide, wide) == (4, 4)  # the second overlaps the first, and the last one has a low score
    moved = positions((52 * 10 + 10, 4, 0.9), (52 * 30 + 30, 20, 0.7))
    assert same(wide, moved) == (2, 4)
    assert same(wide, positions()) == (0, 2)


def test_characters_are_compared_where_float32_reads_some() -> None:
    wide, narrow = np.zeros((2, 1, 4, 10))
    wide[0, range(4), [0, 3, 4, 5]] = 1
    narrow[0, range(4), [1, 3, 4, 0]] = 1
    assert PRETRAINED["ppocr4_rec"].same(wide, narrow) == (2, 3)


def test_classes_are_compared_by_the_largest_value() -> None:
    same = PRETRAINED["ppocr_cls"].same
    assert same(np.array([[0.4, 0.6]]), np.array([[0.1, 0.2]])) == (1, 1)
    assert same(np.array([[0.4, 0.6]]), np.array([[0.6, 0.4]])) == (0, 1)


def test_an_engine_runs_its_fastest_form() -> None:
    class Form:
        version = "1"

        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            time.sleep(self.seconds)
            return [np.array(self.seconds)]

    engine = FastestForm([partial(Form, seconds) for seconds in (0.02, 0.001, 0.03)])
    assert [float(engine.run({})[0]) for _ in range(2)] == [0.001, 0.001]


@pytest.mark.parametrize("seed", [0, 1])
def test_images_have_dark_digits_on_a_bright_ground(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for image in (line_of_text(rng, 48, 320), scattered_digits(rng, 416)):
        assert image.dtype == np.float32 and 0 <= image.min() < 0.45 and 0.6 < np.median(image) <= 1
