"""`nnefc compare`: compares a network's tensors with those of a reference, and finds the first that differs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.arrays import read_inputs
from nnefc.cli.commands.view import check_page
from nnefc.cli.grouped import Command, option
from nnefc.cli.options import compiler_options, given
from nnefc.cli.tables import columns, without_middle
from nnefc.driver.option_keywords import CompareKeywords, ReadKeywords, compile_options

if TYPE_CHECKING:
    from nnefc.comparison.compare import ComparedTensor, Comparison

__all__ = ["DIFFERENT", "compare_model"]

DIFFERENT = 3
"""The exit status if a tensor differs from the reference by more than the bound."""

_HEAD = ("error", "largest", "mean", "range", "type", "shape", "tensor", "of")
_MAX_NAME, _MAX_LOCATION = 20, 28  # characters of a cell: a line takes about 100


@click.command("compare", cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@option(
    "--library",
    group="Reference",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare the outputs of this library, compiled of MODEL, in place of what MODEL is compiled to now.",
)
@option(
    "--key",
    group="Reference",
    type=click.Path(path_type=Path),
    metavar="FILE.pem",
    help="A public key: refuse a --library that was not signed with its private one, by nnefc sign.",
)
@option(
    "--input",
    "--inputs",
    "inputs",
    group="Inputs",
    multiple=True,
    metavar="NAME=FILE",
    help="A .npy file for an input, or an .npz file for all inputs that it names (repeatable).  [default: random "
    "values]",
)
@option(
    "--random",
    group="Inputs",
    type=click.IntRange(min=0),
    default=0,
    metavar="SEED",
    help="The seed of random values.  [default: 0]",
)
@option(
    "--reference",
    group="Reference",
    type=click.Choice(["onnxruntime", "plain", "strict", "fp32", "tf32", "bf16", "fp16"]),
    help="What to compare with: onnxruntime; plain, each operator by itself, by TVM; or the network compiled strictly, "
    "or in another precision.  [default: onnxruntime for ONNX, else plain]",
)
@option(
    "--max-error",
    group="Reference",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SHARE",
    help="How far a tensor may be from the reference, over its largest value.  [default: 1e-3; 1e-2 for fp16, 5e-2 for "
    "bf16, 1e-1 for int8]",
)
@option(
    "--every",
    group="Output",
    is_flag=True,
    help="Compare tensors too that only kernels know that compute several operators; they are split there.",
)
@option("--passes", group="Output", is_flag=True, help="Find the first pass that makes the outputs wrong, if they are.")
@option("--json", "as_json", group="Output", is_flag=True, help="Print JSON.")
@option(
    "--html",
    group="Output",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write a page with the model as a graph, the error of each tensor in it, and all tensors.",
)
@compiler_options(["target", *CompareKeywords.__annotations__])
def compare_model(
    model: Path,
    library: Path | None,
    key: Path | None,
    inputs: tuple[str, ...],
    random: int,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Compare MODEL (NNEF, ONNX, TFLite or PNNX), compiled for this machine, with a reference, tensor by tensor.

    Tensors are listed in the order in which the network computes them; the first that is too far away is named. The
    exit status is 3 if there is one.
    """
    if options["precision"] == "auto":
        raise click.UsageError("--precision auto chooses by errors itself: say which precision to look at")
    if key is not None and library is None:
        raise click.UsageError("--key checks the signature of a library: give it by --library")
    if html is not None:
        check_page(html)
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.comparison.compare import compare

    found = compare(
        model, library=library, key=key, inputs=lambda ports: read_inputs(inputs, ports), seed=random, **given(options)
    )
    if html is not None:
        _write_page(html, model, found, given(options))
    click.echo(json.dumps(found.record(), indent=2) if as_json else "\n".join(comparison_lines(found)))
    if not found.is_close:
        click.get_current_context().exit(DIFFERENT)


def _write_page(output: Path, model: Path, found: Comparison, keywords: dict[str, Any]) -> None:
    """Write the page, with the graph of the model as in its file."""
    from nnefc.cli.commands.comparison_page import comparison_page
    from nnefc.inspect.views import graphs_of
    from nnefc.support.output_files import write_text

    reading = {name: value for name, value in keywords.items() if name in ReadKeywords.__annotations__}
    chosen = compile_options("nnefc compare", reading, keywords.get("target", "llvm"), ReadKeywords)
    write_text(output, comparison_page(model.name, graphs_of(model, (), chosen), found, _words(found)))


def comparison_lines(found: Comparison) -> list[str]:
    """Return a line for each tensor, with a mark if it exceeds the bound, and then the conclusion."""
    rows: list[Sequence[str]] = [("", *_HEAD)] if found.tensors else []
    rows += [_row(tensor, found.bound) for tensor in found.tensors]
    lines = columns(rows, right=range(1, 5))
    lines += [
        "",
        *columns([("", *_HEAD[:-2], "output"), *(_row(o, found.bound)[:-1] for o in found.outputs)], range(1, 5)),
    ]
    lines += ["", *_words(found)]
    return lines if found.tensors else lines[1:]


def _row(tensor: ComparedTensor, bound: float) -> tuple[str, ...]:
    apart = tensor.difference
    mark = " " if apart.relative <= bound else "!"
    numbers = (_number(apart.relative), _number(apart.largest), _number(apart.mean), _number(apart.scale))
    return (
        mark,
        *numbers,
        tensor.dtype,
        f"[{', '.join(map(str, tensor.shape))}]",
        without_middle(tensor.name, _MAX_NAME),
        _begin(tensor.location, _MAX_LOCATION),
    )


def _number(value: float) -> str:
    return f"{value:.2e}" if math.isfinite(value) else "wrong"


def _begin(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _words(found: Comparison) -> Sequence[str]:
    named = {"plain": "each operator by itself", "strict": "the network compiled strictly"}
    lines = [f"compared with {named.get(found.reference, found.reference)}: {_count(found)}"]
    if found.left_out:
        lines.append(
            f"{found.left_out:,} more are inside of kernels, or not known to both sides (--every, --output-tensor)"
        )
    first = found.first
    if first is not None:
        of = f", of {first.location}" if first.location else ""
        wrong = f"{first.difference.wrong:,} of its elements are NaN or infinite on one side alone, or missing"
        far = f"its error is {_number(first.difference.relative)}, and {found.bound:.0e} is allowed (--max-error)"
        lines.append(f"first too far away: {first.name}{of}; {wrong if first.difference.wrong else far}")
        if found.tensors and first in found.outputs:
            lines.append("no tensor on the way is: the fault is in what is different where these are outputs too")
    if found.asked_passes and any(not output.difference.relative <= found.bound for output in found.outputs):
        lines.append(_of_passes(found))
    return lines


def _count(found: Comparison) -> str:
    both = (*found.tensors, *found.outputs)
    far = sum(not tensor.difference.relative <= found.bound for tensor in both)
    return f"{len(found.tensors):,} tensors and {len(found.outputs):,} outputs, {far:,} of them too far away"


def _of_passes(found: Comparison) -> str:
    if found.wrong_pass == "network":
        return "the outputs are wrong before the first pass: look at how the model is read"
    if found.wrong_pass is not None:
        return f"the first pass after which the outputs are wrong: {found.wrong_pass}"
    step = found.wrong_step
    right = "after every pass over the graph the outputs are right"
    if step is None:
        return f"{right}, and no step of a kernel was found to be wrong"
    return f"{right}; the first step after which a kernel is wrong: {step.step}, of the kernel {step.kernel}"
