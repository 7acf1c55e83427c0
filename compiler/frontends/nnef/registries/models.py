"""`tract_core` and `tract_resource`: access to other models and values in a model's folder or archive.

y = tract_core_submodel(x, label = 'encoder');                  encoder.nnef.tgz, encoder.nnef.tar or a folder
w = tract_resource_get(label = 'config', key = '$.sizes[0]');   of config.json
"""

from __future__ import annotations

import re

from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, registry
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.files.resources import read_json
from nnefc.frontends.nnef.values import Arguments
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_PART = re.compile(r"([\w+=-]+)((?:\[\d+\])*)")


@registry("tract_core").operator(
    "fragment tract_core_submodel<?>(input: tensor<?>[], label: string) -> (outputs: tensor<?>[])", sizes=True
)
def _submodel(context: ExtensionContext, args: Arguments) -> Value:
    """The graph of a model inside the model, on these inputs; its symbols are sizes of these."""
    made = context.run_model(args.label, args.input)
    return made[0] if len(made) == 1 else tuple(made)


@registry("tract_resource").operator(
    "fragment tract_resource_get<?>(label: string, key: string) -> (output: tensor<?>)", sizes=True
)
def _resource_get(context: ExtensionContext, args: Arguments) -> Value:
    """A value of a file in JSON: names after `$`, with points between them, and numbers of elements in brackets."""
    value = read_json(context.text_of(f"{args.label}.json"), f"{args.label}.json")
    return _nnef(_found(value, args.key), args.key)


def _found(value: Value, key: str) -> Value:
    first, *parts = key.split(".")
    if not re.fullmatch(r"\$((?:\[\d+\])*)", first):
        raise CompileError(f"the key '{key}' does not begin with '$'")
    steps: list[str | int] = [int(number) for number in re.findall(r"\d+", first)]
    for part in parts:
        found = _PART.fullmatch(part)
        if found is None:
            raise CompileError(f"'{part}' in the key '{key}' is no name with numbers of elements")
        steps += [found[1], *map(int, re.findall(r"\d+", found[2]))]
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise CompileError(f"there is nothing at '{key}': no '{step}'") from None
    return value


def _nnef(value: Value, key: str) -> Value:
    if isinstance(value, list):
        return [_nnef(element, key) for element in value]
    if value is None or isinstance(value, dict):
        raise CompileError(f"the value at '{key}' is not a number, boolean, string or list of these")
    return value
