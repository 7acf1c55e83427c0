"""A share of all cases through the whole compiler: what the passes make of the operations computes the same."""

import pytest
import test_operations_compound
import test_operations_elementwise
import test_operations_roi
import test_operations_shape
import test_operations_window
from nnef_cases import compare, document, inputs_of, load_text, with_share

from nnefc.driver.compile import compile_network
from nnefc.targets.machine.cpu.parsing import parse_target

GROUPS = {
    "elementwise": lambda: test_operations_elementwise.FINAL[::3],
    "shape": lambda: test_operations_shape.FINAL[::3],
    "compound": lambda: test_operations_compound.FINAL[::3],
    "pools": lambda: test_operations_window.pool_cases(31, spatial_only=True)[::5],
    "windows": lambda: test_operations_window.pool_cases(32, spatial_only=False)[::7],
    "transposed": lambda: test_operations_window.transposed_cases(33, output_shapes=True)[::5],
    "conv": lambda: test_operations_window.conv_cases(34, "final")[::2],
    "deconv": lambda: test_operations_window.deconv_cases(35, "final")[::2],
    "roi": lambda: test_operations_roi.cases()[::4],
}


@pytest.mark.parametrize("group", GROUPS)
@with_share
@pytest.mark.sample(5)
def test_compiled_operations_agree_with_the_definition(tmp_path, group, share):
    cases = GROUPS[group]() if share is list else share(GROUPS[group]())[::3]
    text, names = document(cases)
    network = load_text(text, tmp_path)
    artifact = compile_network(network, parse_target("llvm"))
    results = artifact.run(dict(zip(network.inputs, inputs_of(cases), strict=True)))
    compare(cases, [results[name] for name in names])
