"""Writes docs/onnx-operators.md, from the registry and the standard's schemas.

python docs/onnx_operators.py
"""

from __future__ import annotations

from pathlib import Path

import onnx.defs

from nnefc.frontends.onnx.checks.extensions import EXTENSIONS
from nnefc.frontends.onnx.operator import OPERATORS, listed_name

__all__ = ["PAGE", "operators_table"]

PAGE = Path(__file__).with_name("onnx-operators.md")

_DOMAINS = {
    "": "ai.onnx",
    "ai.onnx.preview.training": "ai.onnx.preview.training",
    "ai.onnx.preview": "ai.onnx.preview",
    "ai.onnx.ml": "ai.onnx.ml",
    "com.microsoft": "com.microsoft",
}

_LIMITS = {
    "DFT": "the axis must be known at compile time",
    "DeformConv": "two spatial dimensions",
    "Det": "no 16-bit floats",
    "CastMap": "of maps that are known at compile time",
    "DictVectorizer": "of maps that are known at compile time",
    "Dropout": "in training, the ratio must be known at compile time",
    "Gather": "an index out of range fails the run",
    "GatherElements": "an index out of range fails the run",
    "GatherND": "an index out of range fails the run; where the length of the tuples is open, the declared rank of the "
    "result tells it, or one dimension to index",
    "GridSample": "cubic along every dimension",
    "If": "the results of the branches must have equal types and ranks where the condition is computed",
    "ImageDecoder": "no WebP, JPEG 2000 or arithmetic coding",
    "Loop": "where it is not unrolled, states keep their types and ranks, and their sizes have a limit that is known "
    "before the loop",
    "MaxRoiPool": "float32, float64",
    "QuantizeLinear": "no 6-bit floats",
    "RandomNormal": "not in branches and loops that are decided at run time",
    "RandomUniform": "not in branches and loops that are decided at run time",
    "RegexFullMatch": "no Unicode scripts",
    "Resize": "scales and the region must be known at compile time, or scales be quotients of sizes; sizes may be "
    "computed from data",
    "Scatter": "an index out of range is an error where it is constant, and fails the run otherwise",
    "ScatterElements": "an index out of range is an error where it is constant, and fails the run otherwise",
    "ScatterND": "an index out of range is an error where it is constant, and fails the run otherwise",
    "StringNormalizer": "the locale counts for nothing; stop words not in branches and loops that are decided at "
    "run time",
    "ZipMap": "gives the values, a column for each label; the library's description has the labels",
}

_HEAD = """# ONNX operators

Generated from the declarations by `python docs/onnx_operators.py`; do not edit.

An operator is lowered directly for the versions in the second column; with *function* it is also, or only, expanded
into the function by which the standard defines it. Types are those of the newest version that tensors of a program can
have. Inputs that shapes depend on (axes, sizes, paddings, …) must be known at compile time, as constants or computed
from them, or follow from sizes of inputs. ConstantOfShape, Expand, OneHot, Pad, Range, Reshape, Resize, Slice, Split,
Tile and TopK take sizes that are computed from data too, CumSum and CumProd any axis.
Complex numbers exist at compile time only.

| operator | versions | types | limits |
|---|---|---|---|
"""

_NOT_COMPUTED = ("complex",)


def operators_table() -> str:
    """All operators of the standard and of onnxruntime's domain that can be compiled, as Markdown."""
    versions: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in (*onnx.defs.get_all_schemas_with_history(), *EXTENSIONS.values()):
        if schema.domain in _DOMAINS:
            versions.setdefault((schema.domain, schema.name), []).append(schema)
    return _HEAD + "".join(_row(key, schemas) for key, schemas in sorted(versions.items()))


def _row(key: tuple[str, str], schemas: list[onnx.defs.OpSchema]) -> str:
    domain, name = key
    direct = sorted(OPERATORS.get(listed_name(*key), {}))
    function = any(s.has_function or s.has_context_dependent_function for s in schemas)
    if not direct and not function:
        return ""
    newest = max(schemas, key=lambda schema: schema.since_version)
    shown = ", ".join(map(str, direct))
    if function and {s.since_version for s in schemas} - set(direct):
        shown = f"{shown}; function" if shown else "function"
    spelled = name if not domain else f"{name} ({_DOMAINS[domain]})"
    return f"| {spelled} | {shown} | {_types(newest)} | {_LIMITS.get(name, '')} |\n"


def _types(schema: onnx.defs.OpSchema) -> str:
    """Element types of the first input, or of the result without one."""
    border = [*schema.inputs, *schema.outputs][0]
    constraint = next((c for c in schema.type_constraints if c.type_param_str == border.type_str), None)
    found = [border.type_str] if constraint is None else list(constraint.allowed_type_strs)
    names = []
    for text in found:
        inner = text.replace("tensor(", "").replace("seq(", "sequence of ").replace("optional(", "optional ").strip(")")
        if not any(part in inner for part in _NOT_COMPUTED):
            names.append({"float": "float32", "double": "float64"}.get(inner, inner))
    if any(name.startswith(("sequence", "optional")) for name in names):
        return "any"
    return ", ".join(sorted(names, key=lambda n: (n.rstrip("0123456789"), n)))


if __name__ == "__main__":
    PAGE.write_text(operators_table(), encoding="utf-8")
