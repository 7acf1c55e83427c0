"""Reads what a file of GGUF says of the pooling of an encoder, and of the layers behind it."""

from __future__ import annotations

from nnefc.frontends.decoder import ENCODERS, Dense, Encoding, Weights
from nnefc.frontends.gguf.container import Container
from nnefc.frontends.gguf.keys import Keys

__all__ = ["encoding_of"]

_KEY = "pooling_type"
_NONE, _RANK = 0, 4
_POOLINGS = {1: "mean", 2: "cls", 3: "last"}
_HEADS = ("cls.", "output.")


def encoding_of(container: Container, architecture: str, weights: Weights) -> Encoding | None:
    """Returns how the rows of a text become one result; None for decoders. Tensors that no result needs are left out.

    Embeddings are normalized, as llama.cpp returns them; without a pooling they are means.

    Raises:
        CompileError: the pooling is not known.
    """
    keys, is_encoder = Keys(container, architecture), architecture in ENCODERS
    kind = keys.integer(_KEY, _NONE)
    if kind == _NONE and not is_encoder:
        return None
    if kind == _RANK:
        hidden = Dense("cls", "gelu", "cls.norm") if "cls.norm.weight" in weights else Dense("cls", "tanh")
        layers = [*([hidden] if "cls.weight" in weights else []), Dense("cls.output")]
        types = weights.tensors.get("token_types.weight")
        takes_segments = types is not None and types.shape[0] > 1
        pooling = "cls" if is_encoder else "last"
        return Encoding(pooling, tuple(layers), scores=True, takes_segments=takes_segments)
    if kind not in (_NONE, *_POOLINGS):
        raise keys.refuse(_KEY, f"is {kind}, which is no known pooling")
    for name in [name for name in weights.tensors if name.startswith(_HEADS)]:
        del weights.tensors[name]
    dense = tuple(Dense(name) for name in ("dense_2", "dense_3") if f"{name}.weight" in weights)
    return Encoding(_POOLINGS.get(kind, "mean"), dense, is_normalized=True)
