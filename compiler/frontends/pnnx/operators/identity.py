"""Operators that are the identity at inference, and element type conversions."""

from __future__ import annotations

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of
from nnefc.frontends.pnnx.operators.declaration import DType, Result, operator

__all__: list[str] = []


@operator(
    "nn.Dropout",
    "nn.Dropout1d",
    "nn.Dropout2d",
    "nn.Dropout3d",
    "nn.AlphaDropout",
    "nn.FeatureAlphaDropout",
    "F.dropout",
    "F.dropout1d",
    "F.dropout2d",
    "F.dropout3d",
    "F.alpha_dropout",
    "F.feature_alpha_dropout",
)
def _dropout(ctx: Lowering, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Result:
    return input


@operator("nn.Identity", "Tensor.contiguous", "Tensor.detach", "torch.clone", "Tensor.clone", "torch.detach")
def _identity(ctx: Lowering, input: Tensor, memory_format: str | None = None) -> Result:
    return input


@operator("Tensor.to", "Tensor.type")
def _to(
    ctx: Lowering,
    input: Tensor,
    dtype: DType | None = None,
    device: str | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: str | None = None,
) -> Result:
    return input if dtype is None else ctx.convert(input, dtype)


@operator("Tensor.type_as")
def _type_as(ctx: Lowering, input: Tensor, other: Tensor) -> Result:
    return ctx.convert(input, dtype_of(other))


for _name in ("float", "double", "half", "int", "long", "short", "bool"):

    @operator(f"Tensor.{_name}", name=_name)
    def _cast(ctx: Lowering, input: Tensor, name: str) -> Result:
        types = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}
        return ctx.convert(input, {**types, "short": "int16"}.get(name, name))
