"""How often trained networks say the same in narrow precisions as in float32.

`ppocr_cls` classifies a line of text: it is upright, or upside down.
`ppocr4_rec` reads a line of text: of each column of the image it says which of 6,625 characters is there, or none.
`ddddocr_det` finds characters in an image: a box, and how sure it is, at each position of three grids.

Integers are made by two quantizers, with the same images and settings: ranges by the smallest and the largest value, a
scale for each output channel of the weights. onnxruntime runs what its own has written, nnefc all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from integer_models import onnxruntime_quantizes
from onnx import version_converter
from onnxruntime.quantization.shape_inference import quant_pre_process
from pictures import line_of_text, scattered_digits
from report import table

import nnefc

__all__ = ["PRETRAINED", "agreement_table", "digits_table"]

_DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
_PRECISIONS = ("bf16", "fp16")
_FORMS = (*_PRECISIONS, "int8", "int8 by onnxruntime")

_CALIBRATION, _TESTS = 16, 16
_OPSET = 13  # the first that has scales for channels
_SURE = 0.3  # minimum score of a box
_OVERLAP = 0.45  # of boxes, from which on the less sure one is left out
_MATCH = 0.5  # overlap of boxes that are taken for the same
_SIDE = 416  # of an image that boxes are found in
_GRIDS = (8, 16, 32)  # pixels of a position


@dataclass(frozen=True)
class Pretrained:
    """A network with its trained values, and what is asked of it.

    Attributes:
        input: its name.
        shape: of the input.
        image: an input.
        same: how many answers to one input two results share, and how many there are.
        answers: what they are.
    """

    input: str
    shape: tuple[int, ...]
    image: Callable[[np.random.Generator], np.ndarray]
    same: Callable[[np.ndarray, np.ndarray], tuple[int, int]]
    answers: str


def _line(rng: np.random.Generator) -> np.ndarray:
    return np.repeat(line_of_text(rng, 48, 320)[None, None] * 2 - 1, 3, 1).astype(np.float32)


def _rotated_line(rng: np.random.Generator) -> np.ndarray:
    line = line_of_text(rng, 48, 192)
    return np.repeat((line[::-1, ::-1] if rng.random() < 0.5 else line)[None, None] * 2 - 1, 3, 1).astype(np.float32)


def _scene(rng: np.random.Generator) -> np.ndarray:
    return scattered_digits(rng, _SIDE)[None] * np.float32(255)


def _same_class(wide: np.ndarray, narrow: np.ndarray) -> tuple[int, int]:
    return int(wide[0].argmax() == narrow[0].argmax()), 1


def _same_characters(wide: np.ndarray, narrow: np.ndarray) -> tuple[int, int]:
    """Of the columns with a character; the class 0 is none."""
    wanted, found = wide[0].argmax(-1), narrow[0].argmax(-1)
    there = wanted != 0
    return int((wanted == found)[there].sum()), int(there.sum())


def _same_boxes(wide: np.ndarray, narrow: np.ndarray) -> tuple[int, int]:
    """Boxes of both that have a partner, of all."""
    wanted, found = (_boxes(result[0]) for result in (wide, narrow))
    left = list(range(len(found)))
    matched = 0
    for box in wanted:
        best = max(left, key=lambda n: _overlap(box, found[n]), default=None)
        if best is not None and _overlap(box, found[best]) >= _MATCH:
            left.remove(best)
            matched += 1
    return 2 * matched, len(wanted) + len(found)


def _boxes(result: np.ndarray) -> list[np.ndarray]:
    """The boxes (left, top, right, bottom) that a result `[positions, 6]` is sure of, without those that say the
    same."""
    positions = [np.stack(np.meshgrid(*[np.arange(_SIDE // step)] * 2), -1).reshape(-1, 2) for step in _GRIDS]
    steps = np.concatenate([np.full((len(grid), 1), step) for grid, step in zip(positions, _GRIDS, strict=True)])
    middle, size = (result[:, :2] + np.concatenate(positions)) * steps, np.exp(result[:, 2:4]) * steps
    score, edges = result[:, 4] * result[:, 5:].max(-1), np.concatenate([middle - size / 2, middle + size / 2], -1)
    kept: list[np.ndarray] = []
    for position in np.argsort(-score):
        if score[position] < _SURE:
            break
        if all(_overlap(edges[position], other) < _OVERLAP for other in kept):
            kept.append(edges[position])
    return kept


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """What two boxes share, over what they cover."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    areas = [float(np.prod(box[2:] - box[:2])) for box in (one, other)]
    return shared / (sum(areas) - shared)


PRETRAINED = {
    "ppocr_cls": Pretrained("x", (1, 3, 48, 192), _rotated_line, _same_class, "which way up a line of text is"),
    "ppocr4_rec": Pretrained("x", (1, 3, 48, 320), _line, _same_characters, "characters of a line of text"),
    "ddddocr_det": Pretrained("images", (1, 3, _SIDE, _SIDE), _scene, _same_boxes, "boxes around characters"),
}


def agreement_table(folder: Path, scratch: Path) -> list[str]:
    """A table of the networks of `folder`; models are written into `scratch`."""
    rows = []
    for name, network in PRETRAINED.items():
        same, noise = zip(*_compared(folder / f"{name}.onnx", network, scratch), strict=True)
        rows.append([name, network.answers, *(f"{100 * share:.1f} %" for share in (*same, *noise))])
    return table(["network", "answers", *_FORMS, *(f"noise {form}" for form in _FORMS)], rows)


def digits_table() -> list[str]:
    """How many digits the example's network reads right in each precision, and how many as in float32."""
    test = np.load(_DIGITS / "test.npz")
    images = test["images"].astype(np.float32) / 16
    answers = {}
    for precision in ("fp32", *_PRECISIONS, "int8"):
        data = {"image": images[:_CALIBRATION]} if precision == "int8" else None
        with nnefc.compile(_DIGITS / "model.nnef", precision=precision, calibrate=data).load() as model:
            answers[precision] = np.array([int(model(image[None]).argmax()) for image in images])
    right = [f"{100 * np.mean(found == test['labels']):.1f} %" for found in answers.values()]
    same = [f"{100 * np.mean(found == answers['fp32']):.1f} %" for found in answers.values()]
    return table(["", *answers], [["right", *right], ["as in float32", *same]])


def _compared(model: Path, network: Pretrained, scratch: Path) -> Iterator[tuple[float, float]]:
    """Of each of `_FORMS`: the share of the answers that stay, and the noise in the result, over its size."""
    rng = np.random.default_rng(1)
    images = [network.image(rng) for _ in range(_CALIBRATION + _TESTS)]
    known, others = images[:_CALIBRATION], images[_CALIBRATION:]
    source = _of_fixed_size(model, network, scratch)
    wide = _by_onnxruntime(source, network, others)
    integers = source.with_suffix(".onnxruntime.onnx")
    onnxruntime_quantizes(source, integers, [{network.input: image} for image in known])
    for narrow in (
        *(_by_nnefc(source, network, others, precision=precision) for precision in _PRECISIONS),
        _by_nnefc(source, network, others, precision="int8", calibrate={network.input: np.stack(known)}),
        _by_onnxruntime(integers, network, others),
    ):
        counts = [network.same(one, other) for one, other in zip(wide, narrow, strict=True)]
        squares = [
            (np.square(a.astype(np.float64) - b).sum(), np.square(a.astype(np.float64)).sum())
            for a, b in zip(wide, narrow, strict=True)
        ]
        error, size = np.sum(squares, 0)
        same, total = np.sum(counts, 0)
        yield float(same / total), float(np.sqrt(error / size))


def _of_fixed_size(model: Path, network: Pretrained, scratch: Path) -> Path:
    """The model with its input of this size, constants computed, in an opset that has scales for channels."""
    proto = onnx.load(model)
    if proto.opset_import[0].version < _OPSET:
        proto = version_converter.convert_version(proto, _OPSET)
    proto.graph.input[0].type.tensor_type.shape.CopyFrom(
        onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, network.shape).tensor_type.shape
    )
    fixed, simple = (scratch / f"{model.stem}.{kind}.onnx" for kind in ("fixed", "simple"))
    onnx.save(proto, fixed)
    quant_pre_process(str(fixed), str(simple), skip_symbolic_shape=True)
    return simple


def _by_nnefc(source: Path, network: Pretrained, images: Sequence[np.ndarray], **options: Any) -> list[np.ndarray]:
    """What nnefc computes of each."""
    with nnefc.compile(source, **options).load() as library:
        return [next(iter(library.run({network.input: image}).values())).copy() for image in images]


def _by_onnxruntime(model: Path, network: Pretrained, images: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime computes of each."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(session.run(None, {network.input: image})[0]) for image in images]
