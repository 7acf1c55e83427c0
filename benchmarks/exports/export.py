"""Export one network of PyTorch with torch-to-nnef: `python benchmarks/exports/export.py FOLDER NAME`.

Writes FOLDER/NAME/model.nnef.tgz; for each of its sizes `run0.npz`, … with the inputs by name and the output of PyTorch
as `output`; and `recipe.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from networks import NETWORKS
from torch_to_nnef import TractNNEF, export_model_to_nnef
from torch_to_nnef.compress import DEFAULT_COMPRESSION

VERSION = "0.23.8"
"""Of tract, whose operators are written."""
BY_VERSION = {"hf_mixtral": "0.23.9"}


def export(folder: Path, name: str) -> None:
    """Export a network, run it, and write what it is given and gives."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    recipe, version = NETWORKS[name], BY_VERSION.get(name, VERSION)
    # The exporter asks this file for its version; it would compare results with tract itself, which we do.
    program = folder / "tract"
    program.write_text(f"#!/bin/sh\necho tract {version}\n")
    program.chmod(0o755)
    with torch.no_grad():
        module = recipe.make().eval()
        if recipe.kind == "Q4_0":
            module = DEFAULT_COMPRESSION["min_max_q4_0"](module) or module
        runs = [recipe.inputs(**sizes) for sizes in recipe.sizes]
        outputs = [module(*inputs) for inputs in runs]
        names = [f"input{i}" for i in range(len(runs[0]))]
        axes = {names[i]: dict(symbols) for i, symbols in recipe.axes.items()}
        target = TractNNEF(version, check_io=False, dynamic_axes=axes, specific_tract_binary_path=program)
        export_model_to_nnef(
            module,
            tuple(runs[0]),
            folder / "model.nnef.tgz",
            target,
            input_names=names,
            output_names=["output"],
            compression_level=1,
        )
    program.unlink()
    symbols = {axes[names[i]][axis]: runs[0][i].shape[axis] for i, each in recipe.axes.items() for axis in each}
    for number, (inputs, output) in enumerate(zip(runs, outputs, strict=True)):
        arrays = {given: value.numpy() for given, value in zip(names, inputs, strict=True)}
        np.savez(folder / f"run{number}.npz", **arrays, output=output.float().numpy())
    facts = {"kind": recipe.kind, "sizes": [dict(sizes) for sizes in recipe.sizes], "symbols": symbols}
    (folder / "recipe.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    own = Path(sys.argv[1]) / sys.argv[2]
    own.mkdir(parents=True, exist_ok=True)
    export(own, sys.argv[2])
