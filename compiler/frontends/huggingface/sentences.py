"""Reads how a folder makes one result of a text: the modules of sentence-transformers, or the head of a classifier."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnefc.frontends.decoder import ENCODERS, Dense, Encoding, StoredTensor
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.huggingface.safetensors import read_json, read_shards
from nnefc.support.diagnostics import CompileError

__all__ = ["Sentences", "sentences_of"]

_MODULES, _POOLING, _CONFIG = "modules.json", "1_Pooling", "config.json"
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_lasttoken": "last",
}
_NAMES = {"cls": "cls", "mean": "mean", "max": "max", "mean_sqrt_len_tokens": "mean_sqrt_len", "lasttoken": "last"}
_ACTIVATIONS = {"Identity": None, "Tanh": "tanh", "GELU": "gelu", "ReLU": "relu", "SiLU": "silu", "Sigmoid": "sigmoid"}
_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_GELUS = {"gelu": "gelu", "gelu_pytorch_tanh": "tract_core_gelu_approx", "relu": "relu", "silu": "silu", "tanh": "tanh"}


@dataclass
class Sentences:
    """The modules of a folder of sentence-transformers.

    Attributes:
        encoding: how the rows of a text become one.
        tensors: of the layers behind the pooling.
        files: that were read, relative to the folder.
    """

    encoding: Encoding
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)


def sentences_of(folder: Path, config: Mapping[str, Any], architecture: str) -> Sentences | None:
    """Returns how a folder makes one result of a text; None for decoders, which make none.

    An encoder whose folder does not say it has the mean of its rows.

    Raises:
        CompileError: a file is not as it must be, or asks for what is not supported.
    """
    has_modules = (folder / _MODULES).is_file()
    if has_modules or (folder / _POOLING / _CONFIG).is_file():
        return _of_modules(folder, has_modules)
    kinds = config.get("architectures") or []
    if isinstance(kinds, list) and any(str(kind).endswith("ForSequenceClassification") for kind in kinds):
        return Sentences(_classifier(config, architecture))
    return Sentences(Encoding("mean")) if architecture in ENCODERS else None


def _classifier(config: Mapping[str, Any], architecture: str) -> Encoding:
    """The head of a model that scores pairs of texts."""
    types = config.get("type_vocab_size", 2)
    takes_segments = architecture in ("bert", "nomic-bert") and isinstance(types, int) and types > 1
    if architecture == "modern-bert":
        pooling, activation = config.get("classifier_pooling", "cls"), config.get("classifier_activation", "gelu")
        if pooling not in ("cls", "mean") or activation not in _GELUS:
            raise CompileError(f"a classifier with '{shown(pooling)}' and '{shown(activation)}' is not supported")
        return Encoding(pooling, (Dense("cls", _GELUS[activation], "cls.norm"), Dense("cls.output")), scores=True)
    if architecture in ENCODERS:
        layers = (Dense("cls", "tanh"), Dense("cls.output"))
        return Encoding("cls", layers, scores=True, takes_segments=takes_segments)
    return Encoding("last", (Dense("cls.output"),), scores=True)


def _of_modules(folder: Path, has_list: bool) -> Sentences:
    """The modules of sentence-transformers, in their order."""
    listed: list[tuple[str, str]] = [("Transformer", ""), ("Pooling", _POOLING)]
    made = Sentences(Encoding("mean"))
    if has_list:
        listed = _modules(folder)
        made.files.append(_MODULES)
    pooling, dense, is_normalized = "mean", [], False
    for n, (kind, path) in enumerate(listed):
        match kind:
            case "Transformer" if not n:
                continue
            case "Pooling":
                pooling = _pooling(folder / path / _CONFIG)
            case "Dense":
                dense.append(_dense(folder / path, f"dense_{n}", made.tensors))
            case "Normalize":
                is_normalized = True
                continue
            case _:
                raise CompileError(f"'{folder / _MODULES}': the module '{shown(kind)}' is not supported here")
        if is_normalized:
            raise CompileError(f"'{folder / _MODULES}': a module behind 'Normalize' is not supported")
        made.files.append(f"{path}/{_CONFIG}")
    made.encoding = Encoding(pooling, tuple(dense), is_normalized)
    return made


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Returns kinds and folders of modules."""
    file = folder / _MODULES
    try:
        found = json.loads(file.read_bytes()) if file.stat().st_size < 1 << 20 else None
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise CompileError(f"'{file}' is not a list of modules")
    listed = [(str(each.get("type", "")).rpartition(".")[2], str(each.get("path", ""))) for each in found]
    for kind, path in listed:
        if path and not _FOLDER.fullmatch(path):
            raise CompileError(f"'{file}' has the module '{shown(kind)}' in '{shown(path)}', which is no folder in it")
    return listed


def _pooling(file: Path) -> str:
    config = read_json(file)
    own = config.get("pooling_mode")
    found = [own] if isinstance(own, str) else own if isinstance(own, list) else None
    if found is None:
        found = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    names = [(_NAMES | _MODES).get(str(each)) for each in found]
    if len(names) != 1 or names[0] is None:
        raise CompileError(
            f"'{file}': the pooling {shown(', '.join(map(str, found)) or 'of nothing')} is not supported",
            hint=f"supported is one of {', '.join(_NAMES)}",
        )
    if config.get("include_prompt") is False:
        raise CompileError(f"'{file}': 'include_prompt' is false, which is not supported")
    return names[0]


def _dense(folder: Path, name: str, tensors: dict[str, StoredTensor]) -> Dense:
    """Reads a layer behind the pooling."""
    config = read_json(folder / _CONFIG)
    kind = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        raise CompileError(f"'{folder / _CONFIG}': the activation '{shown(kind)}' is not supported")
    for label, tensor in read_shards(folder)[0].items():
        tensors[f"{name}.{label.removeprefix('linear.')}"] = tensor
    return Dense(name, _ACTIVATIONS[kind])
