"""Regions of interest against NumPy and, where it has the operation, onnxruntime."""

import math

import numpy as np
import onnx
import onnxruntime
import pytest
from nnef_cases import Case, check, check_expanded, document, inputs_of, load_text, run_network, with_share

RNG = np.random.default_rng(14)
X = RNG.standard_normal((2, 3, 8, 9)).astype(np.float32)
BATCH = np.array([0, 1, 1, 0, 1], np.int32)
ROIS = np.array([[1, 1, 7, 6], [0.4, 2.6, 8.7, 7.5], [3, 3, 3.2, 3.4], [-2, -3, 5, 4], [2, 1, 12, 11]], np.float32)


def pooled(x, rois, batch, size, reduce):
    out = np.zeros((len(rois), x.shape[1], *size))
    for n, (x1, y1, x2, y2) in enumerate(rois):
        for i in range(size[0]):
            for j in range(size[1]):
                bounds = []
                for first, last, position, bins, length in (
                    (y1, y2, i, size[0], x.shape[2]),
                    (x1, x2, j, size[1], x.shape[3]),
                ):
                    begin = math.floor(first + 0.5)
                    span = max(math.floor(last + 0.5) - begin, 1)
                    low, high = begin + position * span // bins, begin + -(-(position + 1) * span // bins)
                    bounds.append((max(low, 0), min(high, length)))
                (top, bottom), (left, right) = bounds
                if top < bottom and left < right:
                    out[n, :, i, j] = reduce(x[batch[n], :, top:bottom, left:right].astype(np.float64), axis=(1, 2))
    return out


def resampled(x, rois, batch, size, method):
    out = np.zeros((len(rois), x.shape[1], *size))

    def source(first, last, position, count):
        return {
            "symmetric": first + (position + 0.5) * (last - first) / count - 0.5,
            "asymmetric": first + position * (last - first) / count,
            "aligned": first + position * (last - first - 1) / max(1, count - 1),
        }[method]

    for n, (x1, y1, x2, y2) in enumerate(rois.astype(np.float64)):
        image = x[batch[n]].astype(np.float64)
        for i in range(size[0]):
            for j in range(size[1]):
                y = min(max(source(y1, y2, i, size[0]), 0), x.shape[2] - 1)
                z = min(max(source(x1, x2, j, size[1]), 0), x.shape[3] - 1)
                top, left = int(y), int(z)
                bottom, right = min(top + 1, x.shape[2] - 1), min(left + 1, x.shape[3] - 1)
                a, b = y - top, z - left
                upper = image[:, top, left] * (1 - b) + image[:, top, right] * b
                lower = image[:, bottom, left] * (1 - b) + image[:, bottom, right] * b
                out[n, :, i, j] = upper * (1 - a) + lower * a
    return out


def cases():
    inputs = {"x": X, "r": ROIS, "b": BATCH}
    made = []
    for size in ([2, 3], [4, 1], [9, 9]):
        made += [
            Case(
                f"$y = avg_roi_pool($x, $r, $b, output_size = {size});",
                inputs,
                {"y": pooled(X, ROIS, BATCH, size, np.mean)},
            ),
            Case(
                f"$y = max_roi_pool($x, $r, $b, output_size = {size});",
                inputs,
                {"y": pooled(X, ROIS, BATCH, size, np.max)},
            ),
        ]
        for method in ("symmetric", "asymmetric", "aligned"):
            text = f"$y = roi_resample($x, $r, $b, output_size = {size}, method = '{method}');"
            made.append(Case(text, inputs, {"y": resampled(X, ROIS, BATCH, size, method)}, 1e-4))
    fine = resampled(X, ROIS, BATCH, [4, 9], "asymmetric").reshape(5, 3, 2, 2, 3, 3)
    options = "output_size = [2, 3], sampling_rate = [2, 3], resize_method = 'asymmetric'"
    made += [
        Case(f"$y = avg_roi_align($x, $r, $b, {options});", inputs, {"y": fine.mean((3, 5))}, 1e-4),
        Case(f"$y = max_roi_align($x, $r, $b, {options});", inputs, {"y": fine.max((3, 5))}, 1e-4),
    ]
    return made


def test_regions_agree_with_numpy(tmp_path):
    check(cases(), tmp_path)


@with_share
def test_expanded_regions_agree_with_numpy(share):
    check_expanded(share(cases()))


def onnx_result(operation, rois, *batch, **attributes):
    values = [
        onnx.helper.make_tensor_value_info("x", 1, X.shape),
        onnx.helper.make_tensor_value_info("r", 1, rois.shape),
    ]
    feeds = {"x": X, "r": rois}
    if batch:
        values.append(onnx.helper.make_tensor_value_info("b", 7, batch[0].shape))
        feeds["b"] = batch[0].astype(np.int64)
    node = onnx.helper.make_node(operation, list(feeds), ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "g", values, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 16)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]


def test_regions_agree_with_onnxruntime(tmp_path):
    rois = np.array([[1, 1, 7, 6], [0, 2, 9, 8], [3, 3, 6, 7]], np.float32)
    batch = np.array([0, 1, 1], np.int32)
    # ONNX includes the end of a box, and keeps the number of the batch element in the box.
    boxes = np.concatenate([batch[:, None], rois - np.array([0, 0, 1, 1])], 1).astype(np.float32)
    pool = onnx_result("MaxRoiPool", boxes, pooled_shape=[2, 3])
    align = onnx_result("RoiAlign", rois, batch, output_height=2, output_width=3, sampling_ratio=2, mode="avg")
    inputs = {"x": X, "r": rois, "b": batch}
    options = "output_size = [2, 3], sampling_rate = [2, 2]"
    check(
        [
            Case("$y = max_roi_pool($x, $r, $b, output_size = [2, 3]);", inputs, {"y": pool}),
            Case(f"$y = avg_roi_align($x, $r, $b, {options});", inputs, {"y": align}, 1e-4),
        ],
        tmp_path,
    )


@pytest.mark.parametrize("operation", ["avg_roi_pool", "max_roi_pool", "roi_resample"])
def test_wild_boxes_read_nothing_outside_the_input(tmp_path, operation):
    rois = np.array([[-1e30, -1e30, 1e30, 1e30], [np.nan, 0, np.inf, 3], [5, 5, -5, -5]], np.float32)
    batch = np.array([7, -3, 2**31 - 1], np.int32)
    case = Case(f"$y = {operation}($x, $r, $b, output_size = [2, 2]);", {"x": X, "r": rois, "b": batch}, {"y": X})
    text, _ = document([case])
    (result,) = run_network(load_text(text, tmp_path), inputs_of([case]))
    assert result.shape == (3, 3, 2, 2)
    # The first box holds everything, the last one a single element.
    assert np.abs(result[[0, 2]]).max() <= np.abs(X).max() + 1e-5
