"""Writes pooling and resampling of regions of interest."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import says
from nnefc.operators.vision.detection import RoiResample
from nnefc.operators.vision.regions import RoiPool


@says(RoiPool)
def _roi_pool(document: Document, operator: RoiPool, x: Any, rois: Any, batch: Any = None) -> Any:
    if operator.scale != 1 or operator.inclusive or batch is None:
        raise Unsayable(
            "NNEF pools regions in elements of the tensor, without their end, here they are given otherwise"
        )
    name = "avg_roi_pool" if operator.average else "max_roi_pool"
    return document.call(name, **_regions(document, operator, x, rois, batch))


@says(RoiResample)
def _roi_resample(document: Document, operator: RoiResample, x: Any, rois: Any, batch: Any = None) -> Any:
    if batch is None:
        raise Unsayable("NNEF has regions with the number of their batch element, here they have none")
    return document.call("roi_resample", method=operator.method, **_regions(document, operator, x, rois, batch))


def _regions(document: Document, operator: RoiPool | RoiResample, x: Any, rois: Any, batch: Any) -> dict[str, Any]:
    tensors = {"input": x, "rois": rois, "batch_index": batch}
    return {name: document.tensor(operand) for name, operand in tensors.items()} | {
        "output_size": list(operator.results)
    }
