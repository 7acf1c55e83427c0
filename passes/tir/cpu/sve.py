"""Writes LLVM IR functions on fixed vectors for scalable instructions (SVE, RVV).

Length-agnostic instructions are functions on scalable vectors in LLVM, such as `<vscale x 4 x i32>`. Kernels compute
with fixed vectors, which lie in the same registers, so that the conversion moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Vector"]

_SHORT = {"float": "f32", "bfloat": "bf16", "half": "f16"}


@dataclass(frozen=True)
class Vector:
    """A fixed vector, and the scalable one.

    Attributes:
        dtype: LLVM's type of an element.
        lanes: of the fixed vector.
        minimum: lanes of the scalable vector in registers of the min length.
    """

    dtype: str
    lanes: int
    minimum: int

    @property
    def fixed(self) -> str:
        """LLVM's type of the fixed vector."""
        return f"<{self.lanes} x {self.dtype}>"

    @property
    def scalable(self) -> str:
        """LLVM's type of the scalable one."""
        return f"<vscale x {self.minimum} x {self.dtype}>"

    @property
    def suffix(self) -> str:
        """The scalable type in names of functions."""
        return f"nxv{self.minimum}{self._element}"

    @property
    def _element(self) -> str:
        return _SHORT.get(self.dtype, self.dtype)

    def begin(self, name: str) -> str:
        """Returns the line that makes `%long_NAME` of `%NAME`."""
        function = f"llvm.vector.insert.{self.suffix}.v{self.lanes}{self._element}"
        return f"  %long_{name} = call {self.scalable} @{function}({self.scalable} poison, {self.fixed} %{name}, i64 0)"

    def returned(self, name: str) -> list[str]:
        """Returns the lines that return a scalable vector as a fixed one, and end the function."""
        return [self.end(name, "r"), f"  ret {self.fixed} %r", "}", ""]

    def end(self, name: str, result: str) -> str:
        """Returns the line that makes a fixed vector of a scalable one."""
        function = f"llvm.vector.extract.v{self.lanes}{self._element}.{self.suffix}"
        return f"  %{result} = call {self.fixed} @{function}({self.scalable} %{name}, i64 0)"
