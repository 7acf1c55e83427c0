"""Descriptions of a model's inputs, outputs and metadata, in the form of onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["NO_VERSION", "ModelMetadata", "NodeArg"]

NO_VERSION = (1 << 63) - 1
"""The version that onnxruntime returns for models without one."""


@dataclass(frozen=True, repr=False)
class NodeArg:
    """Describes an input or output.

    Attributes:
        name: the name in the model.
        type: ONNX's name of the type, such as `tensor(float)`.
        shape: sizes, names of dynamic dimensions, and None for dynamic dimensions without a name.
    """

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"

    __repr__ = __str__


@dataclass
class ModelMetadata:
    """Holds the metadata of a model.

    Attributes:
        graph_name, graph_description: name and description of the graph.
        producer_name: the program that wrote the file.
        description, domain, version: description, domain and version of the model.
        custom_metadata_map: the author's own entries.
    """

    graph_name: str
    producer_name: str
    description: str = ""
    domain: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    graph_description: str = ""
