"""Makes an npm package of a network: modules of WebAssembly, their loader, and a function that loads the network.

    digits/
        package.json  index.mjs  index.d.mts          import { load } from "digits"
        digits.wasm  digits.relaxed-simd.wasm         the first is loaded that an engine can run
        nnefc.mjs  nnefc_module.mjs  nnefc_text.mjs  nnefc.d.mts      the loader

An output that ends with `.tgz` is what `npm pack` writes. The format: docs.npmjs.com, "package.json".
"""

from __future__ import annotations

import json

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.networks import Networks, runtime_files
from nnefc.driver.packages.texts import json_text, template
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import AnyTarget, parse_any_target
from nnefc.targets.machine.system import FileFormat

__all__ = ["NPM", "npm_files"]

_LOADER = ("nnefc.mjs", "nnefc_module.mjs", "nnefc_text.mjs", "nnefc.d.mts")
_FASTEST_FIRST = ("relaxed-udot", "relaxed-sdot", "relaxed-simd", "")
"""Features that modules need of an engine, in the order in which they are tried."""


def npm_files(networks: Networks) -> Files:
    """Returns the files of the package.

    Raises:
        CompileError: a target that is no WebAssembly, two that need the same of an engine, or as :func:`nnefc.compile`.
    """
    modules: dict[str, tuple[str, str]] = {}
    for target in networks.targets:
        need = _need(target, parse_any_target(target))
        if need in modules:
            raise CompileError(
                f"the targets {modules[need][0]!r} and {target!r} need the same of an engine", hint="leave one out"
            )
        modules[need] = target, f"{networks.name}{'.' * bool(need)}{need}.wasm"
    ordered = [(need, *modules[need]) for need in _FASTEST_FIRST if need in modules]
    files = {name: networks.exported(target, name)[name] for _, target, name in ordered}
    sources = ",\n".join(f"  {{ source: {_address(name)}{_needs(need)} }}" for need, _, name in ordered)
    texts = {
        "index.mjs": template("npm_index.mjs", {**networks.values, "sources": sources}),
        "index.d.mts": template("npm_index.d.mts", networks.values),
        **runtime_files(*_LOADER),
    }
    manifest = json_text(
        name=networks.name.lower(),
        version=networks.version,
        description="A neural network, compiled to WebAssembly",
        type="module",
        exports={".": {"types": "./index.d.mts", "default": "./index.mjs"}},
        types="./index.d.mts",
        files=[*texts, *files],
        sideEffects=False,
        engines={"node": ">=18"},
    )
    return {"package.json": manifest, **texts, **files}


def _need(target: str, machine: AnyTarget) -> str:
    """Returns what a module needs of an engine; threads are used where there are some."""
    if machine.format is not FileFormat.WASM:
        raise CompileError(
            f"an npm package has modules of WebAssembly, not files for {target!r}",
            hint="its targets begin with wasm32-",
        )
    features = machine.host.features
    return next(need for need in _FASTEST_FIRST if not need or need in features)


def _address(name: str) -> str:
    return f"new URL({json.dumps(f'./{name}')}, import.meta.url).href"


def _needs(need: str) -> str:
    return f", needs: {json.dumps(need)}" if need else ""


NPM = Kind(
    "npm",
    "A folder with a package for npm, or what npm packs of it: modules of WebAssembly, and a function that loads them.",
    r"(?P<name>\w+?)(-(?P<version>\d+\.\d+\.\d+))?(\.tgz)?",
    "digits-1.0.0.tgz",
    Form.FOLDER,
    ("wasm32-wasi", "wasm32-relaxed"),
    npm_files,
)
