"""The same documents through Khronos' own interpreter (the `nnef` package), where it knows the operation."""

import re

import nnef
import numpy as np
import pytest
import test_operations_compound
import test_operations_elementwise
import test_operations_shape
import test_operations_window
from nnef_cases import Case, document, inputs_of, load_text, run_network, with_share

# What its interpreter computes itself. Other compounds are lowered to these by its own definitions.
EXECUTED = frozenset(
    re.findall(
        r"\w+",
        """
        external constant neg not abs sign exp log log2 sin cos tan asin acos atan sinh cosh asinh acosh atanh tanh
        round floor ceil sqrt sqr rsqrt rsqr rcp copy sigmoid relu leaky_relu elu selu gelu silu softplus add sub mul
        div pow min max and or lt gt le ge eq ne select sum_reduce mean_reduce min_reduce max_reduce any_reduce
        all_reduce conv deconv box debox avg_pool max_pool reshape squeeze unsqueeze transpose concat split stack
        unstack pad tile slice gather cast matmul linear softmax argmin_reduce argmax_reduce multilinear_upsample
        """,
    )
)
LOWERED = re.findall(
    r"\w+",
    """
    clamp moments prelu softabs rms_pool local_response_normalization local_mean_normalization add_n copy_n
    local_variance_normalization local_contrast_normalization l1_normalization l2_normalization batch_normalization
    separable_conv separable_deconv nearest_downsample area_downsample nearest_upsample linear_quantize
    min_max_linear_quantize zero_point_linear_quantize logarithmic_quantize
    """,
)


def known_to_khronos(case: Case) -> bool:
    """Without what its interpreter lacks or refuses, or where it is known to depart from the standard's own words."""
    text = case.statements
    names = set(re.findall(r"(\w+)(?:<\w+>)?\(", text))
    axes = re.search(r"axes = \[([^]]*)\]", text)
    refused = [
        not names <= EXECUTED | set(LOWERED) or not case.expected,
        any(value.ndim > 4 or value.ndim == 0 for value in case.inputs.values()),
        # Literals and negative strides are read differently; a begin before the tensor is refused.
        bool(re.search(r"\d / |true,|begin = \[-100|, 7\)|, 2\.5\)|, false\)|conv.*'ignore'", text))
        and "round" not in text,
        "reflect" in text or ("replicate" in text and names.isdisjoint({"pad", "multilinear_upsample"})),
        # Only one axis, only the factor 2 with zeros outside, only equal batches, no check of indices.
        bool(axes and axes[1].count(",") != 0 and names & {"softmax", "argmax_reduce", "argmin_reduce"}),
        bool(axes and not axes[1] and names & {"softmax", "argmax_reduce", "argmin_reduce"}),
        "multilinear" in text and not ("constant" in text and "symmetric" in text and "[2]" in text),
        "matmul" in text and any(value.ndim > 2 for value in case.inputs.values()),
        "gather" in text and "$i);" in text,
        # Its deconvolution by channel makes one result of each channel only; its debox divides its input.
        "deconv" in text and "groups = 0" in text and case.inputs["w"].shape[1] != 1,
        "debox" in text and "normalize = true" in text,
    ]
    return not any(refused)


def executed(cases, folder):
    text, names = document(cases)
    text = text.replace("extension KHR_enable_operator_expressions;\n", "")
    (folder / "graph.nnef").write_text(text)
    with nnef.Session(str(folder), stdlib=None, lowered=LOWERED) as session:
        theirs = [np.array(result) for result in session(*map(np.ascontiguousarray, inputs_of(cases)))]
    ours = run_network(load_text(text, folder), inputs_of(cases))
    return names, theirs, ours


GROUPS = {
    "elementwise": lambda: test_operations_elementwise.FINAL,
    "shape": lambda: test_operations_shape.FINAL,
    "compound": lambda: test_operations_compound.FINAL,
    "pools": lambda: test_operations_window.pool_cases(21, spatial_only=False),
    "transposed": lambda: test_operations_window.transposed_cases(22, output_shapes=False),
    "conv": lambda: test_operations_window.conv_cases(23, "final"),
    "deconv": lambda: [case for seed in (24, 26, 27) for case in test_operations_window.deconv_cases(seed, "final")],
}


@pytest.mark.parametrize("group", GROUPS)
@with_share
@pytest.mark.sample(3)
def test_khronos_interpreter_computes_the_same(tmp_path, group, share):
    known = [case for case in GROUPS[group]() if known_to_khronos(case)]
    assert len(known) >= 5
    cases = share(known)
    names, theirs, ours = executed(cases, tmp_path)
    statements = [case.statements for case in cases for _ in case.expected]
    problems = []
    for name, statement, their, our in zip(names, statements, theirs, ours, strict=True):
        if their.shape != our.shape or not np.allclose(their, our, rtol=1e-4, atol=1e-4, equal_nan=True):
            problems.append(f"{name} of {statement}")
    assert not problems, f"{len(problems)} of {len(ours)}: {problems[:10]}"
