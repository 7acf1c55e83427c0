"""Writes the tables of docs/language-models.md: `python docs/language_models_page.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nnefc.frontends.decoder import ARCHITECTURES, ENCODERS, Architecture
from nnefc.frontends.decoder.rotary import KINDS
from nnefc.frontends.huggingface.config import MODEL_TYPES
from nnefc.frontends.tensor_types import GGML_TYPES

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).with_name("language-models.md")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _types() -> str:
    rows = [(kind.name, f"{8 * kind.block_bytes / kind.elements:.4g}", kind.computed) for kind in GGML_TYPES.values()]
    return _table(["type", "bits per weight in the file", "in the library"], sorted(rows))


_BIDIRECTIONAL = {"gemma-embedding": "gemma3_text with `use_bidirectional_attention`"}


def _architectures(listed: Mapping[str, Architecture]) -> str:
    folders = {name: [kind for kind, own in MODEL_TYPES.items() if own == name] for name in listed}
    rows = ((name, _about(own), _BIDIRECTIONAL.get(name) or ", ".join(folders[name])) for name, own in listed.items())
    return _table(["architecture", "layers", "`model_type` of folders"], rows)


def _about(own: Architecture) -> str:
    """What is particular of an architecture."""
    features = (
        (own.is_parallel, "attention and feed-forward layer in parallel"),
        (own.post_norm and own.pre_norm, "norms before and behind blocks"),
        (own.post_norm and not own.pre_norm, "norms behind blocks"),
        (own.sum_norm, "norms of sums"),
        (own.is_centered, "layer norm"),
        (own.has_head_norms, "norms of queries and keys"),
        (own.whole_every > 0, "windows"),
        (own.unrotated_every > 0 or not own.rotates_all, "layers without positions"),
        (not own.rotates and not own.mixers, "positions as embeddings"),
        (own.local_base is not None, "angles of their own in layers with windows"),
        (not own.is_gated, "no gates"),
        (own.has_sinks, "sinks"),
        (own.mixers == "latent", "latent attention"),
        (own.mixers == "convolution", "short convolutions"),
        (own.mixers == "state space", "state spaces"),
        (not own.has_feed_forward, "no feed-forward layers"),
        (own.has_updates, "several rows for each position, keys and values shared by layers"),
    )
    return ", ".join(text for holds, text in features if holds) or "as llama"


def page() -> str:
    """Returns the page with its tables as the code has them."""
    text = PAGE.read_text(encoding="utf-8")
    tables = {
        "types": _types(),
        "architectures": _architectures(ARCHITECTURES),
        "encoders": _architectures(ENCODERS),
        "scalings": f"{', '.join(KINDS[1:])}.\n",
    }
    for name, table in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda found, table=table: f"{found[1]}{table}{found[2]}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
