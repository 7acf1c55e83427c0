"""Parts of several tensors that meet in one expression: right, and the same code each time."""

from __future__ import annotations

import numpy as np
import pytest
from relax_programs import many_parts, network_of, target
from tvm import relax

from nnefc.driver.compile import compile_network
from nnefc.passes.graph.fusion.tuple_fusion_barriers import hide_elements, show_elements

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("operator", "function", "tensors", "parts"),
    [("add", np.sum, 7, 3), ("maximum", np.max, 13, 2), ("maximum", np.max, 1, 150), ("add", np.sum, 1, 65)],
)
@pytest.mark.sample(2)
def test_parts_of_several_tensors_are_joined(operator: str, function: object, tensors: int, parts: int) -> None:
    given = {f"x{k}": RNG.standard_normal((parts, 5), dtype=np.float32) for k in range(tensors)}
    expected = function(np.concatenate(list(given.values()), dtype=np.float64), 0, keepdims=True)  # type: ignore[operator]
    with compile_network(network_of(many_parts(operator, tensors, parts)), target("llvm")).load() as loaded:
        (found,) = loaded.run(given).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_groups_read_elements_of_tuples_as_tensors() -> None:
    module = relax.transform.LegalizeOps()(many_parts("add", 4, 3))
    module = relax.transform.AnnotateTIROpPattern()(module)
    grouped = show_elements(relax.transform.FuseOps()(hide_elements(module)))
    groups = [f for f in grouped.functions.values() if isinstance(f, relax.Function) and "Primitive" in (f.attrs or {})]
    (group,) = groups
    assert all(isinstance(param.ty, relax.TensorType) for param in group.params)
    assert len(group.params) == 12
    names = [str(param.name).rpartition("@")[0] or str(param.name) for param in group.params]
    assert names == [f"p{k}_{i}" for k in range(4) for i in range(3)]
    assert relax.analysis.well_formed(grouped) is None
