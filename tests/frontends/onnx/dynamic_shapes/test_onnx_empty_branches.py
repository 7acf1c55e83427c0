"""Branches of which one gives no elements and the other as many as sizes or data say, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import nnefc

RNG = np.random.default_rng(7)

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'

BY_SIZE = f"""{HEADER}
g (float[n, 2] x) => (float[k, 2] y) <int64 few = {{6}}> {{
    count = Size(x)
    is_short = Less(count, few)
    y = If(is_short) <
        then_branch = short () => (float[n, 2] full) {{ full = Neg(x) }},
        else_branch = long () => (float[0, 2] none) {{ none = Constant <value = float[0, 2] {{}}> () }}
    >
}}
"""

BOXES = f"""{HEADER}
g (float[n, 4] boxes, float[n] scores) => (int64[k] kept, float[k, 4] chosen)
<float half = {{0.5}}, int64 zero = {{0}}, int64[1] first = {{0}}, int64[1] many = {{99}}, float[1] most = {{0.5}}> {{
    is_likely = Greater(scores, half)
    found = NonZero(is_likely)
    indices = Squeeze(found, first)
    likely = Gather(boxes, indices)
    count = Size(likely)
    is_empty = Equal(count, zero)
    kept = If(is_empty) <
        then_branch = nothing () => (int64[0] none) {{ none = Constant <value = int64[0] {{}}> () }},
        else_branch = suppression () => (int64[m] best) {{
            batch = Unsqueeze(likely, first)
            likely_scores = Gather(scores, indices)
            of_class = Unsqueeze(likely_scores, first)
            of_batch = Unsqueeze(of_class, first)
            triples = NonMaxSuppression(batch, of_batch, many, most)
            last = Constant <value = int64 {{2}}> ()
            best = Gather <axis = 1> (triples, last)
        }}
    >
    chosen = Gather(likely, kept)
}}
"""
"""The suppression of boxes above a score as torchvision's detectors export it: only if there are any."""


def boxes(count: int, highest: float) -> dict[str, np.ndarray]:
    corners = RNG.random((count, 4), np.float32)
    corners[:, 2:] += corners[:, :2]
    return {"boxes": corners, "scores": RNG.random(count, np.float32) * np.float32(highest)}


FEEDS = {
    BY_SIZE: [{"x": RNG.random((rows, 2), np.float32)} for rows in (1, 2, 3, 9, 2)],
    BOXES: [boxes(count, highest) for count, highest in ((1, 0.4), (5, 1.0), (30, 1.0), (30, 0.5), (0, 1.0), (7, 1.0))],
}


@pytest.mark.parametrize("text", [BY_SIZE, BOXES], ids=["sizes choose", "data choose"])
def test_a_branch_without_elements_needs_no_room_in_the_result(text: str) -> None:
    proto = parser.parse_model(text)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with nnefc.compile(proto).load(threads=1) as library:
        for given in FEEDS[text]:
            for made, expected in zip(library.run(given).values(), session.run(None, given), strict=True):
                np.testing.assert_array_equal(made, expected, strict=True)
