"""Stores the C source of custom kernels in kernel attributes, and assembles it into one file per library.

A kernel calls `nnefc_c_NAME_DIGEST`, a wrapper with the types of its operands, which follows the user's text:

    …                                                                            what the user wrote
    int32_t nnefc_c_scale_1f0c(const float *a0, float *a1, int64_t a2) { return scale(a0, a1, a2); }
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx

from nnefc.ir.attributes import C_CALL
from nnefc.support.diagnostics import CompileError

__all__ = ["CCall", "CSource", "c_files"]


_TYPES = {
    "bool": "bool",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""What elements are in C; of 16-bit floats their bits."""


@dataclass(frozen=True)
class CSource:
    """A file of C.

    Attributes:
        text: its content; `<stdint.h>` and `<stdbool.h>` are included already.
        name: in the compiler's messages.
        folder: in which files that it includes in quotes are searched; empty for none.
    """

    text: str
    name: str = "operator.c"
    folder: str = ""

    @classmethod
    def file(cls, path: Path | str) -> CSource:
        """Read a file.

        Raises:
            CompileError: it cannot be read.
        """
        try:
            return cls(Path(path).read_text(encoding="utf-8"), str(path), str(Path(path).resolve().parent))
        except (OSError, UnicodeDecodeError) as error:
            raise CompileError(f"cannot read the C of an operator, {path}: {error}") from error


@dataclass(frozen=True)
class CCall:
    """A call of a user's function.

    Attributes:
        function: its name; it returns an `int32_t`, 0 for success.
        parameters: the C types of its parameters.
    """

    source: CSource
    function: str
    parameters: tuple[str, ...]

    @classmethod
    def of(
        cls, source: CSource, function: str, reads: Sequence[str], writes: Sequence[str], numbers: Iterable[bool]
    ) -> CCall:
        """A call with pointers to what is read and written, by element types, and numbers: whether each is real."""
        if not function.isidentifier():
            raise CompileError(f"'{function}' is not the name of a function in C")
        pointers = [f"const {_of_elements(dtype)} *" for dtype in reads]
        pointers += [f"{_of_elements(dtype)} *" for dtype in writes]
        return cls(source, function, (*pointers, *("double" if real else "int64_t" for real in numbers)))

    @property
    def symbol(self) -> str:
        """The name of the wrapper."""
        parts = (self.source.text, self.source.name, self.source.folder, self.function, *self.parameters)
        return f"nnefc_c_{self.function}_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"

    @property
    def wrapper(self) -> str:
        """The C wrapper, which follows the user's source text."""
        names = [f"a{number}" for number in range(len(self.parameters))]
        declared = ", ".join(
            f"{kind}{'' if kind.endswith('*') else ' '}{name}"
            for kind, name in zip(self.parameters, names, strict=True)
        )
        head = f"int32_t {self.symbol}({declared or 'void'})"
        return f"{head};\n{head} {{ return {self.function}({', '.join(names)}); }}\n"

    @property
    def attributes(self) -> dict[str, list[str]]:
        """The kernel attributes that make a kernel call the function."""
        return {
            C_CALL: [self.source.text, self.source.name, self.source.folder, self.function, *self.parameters],
        }


def _of_elements(dtype: str) -> str:
    try:
        return _TYPES[dtype]
    except KeyError:
        raise CompileError(f"C has no type for elements of {dtype}") from None


_HEAD = "#include <stdbool.h>\n#include <stdint.h>\n"


def c_files(module: tvm.IRModule) -> dict[CSource, str]:
    """Return the files that the kernels of a module need: by the user's source, the text with the wrappers."""
    kernels = (func for func in module.functions.values() if isinstance(func, tirx.PrimFunc) and calls_c(func))
    calls = dict.fromkeys(map(_call, kernels))
    texts: dict[CSource, str] = {}
    for call in sorted(calls, key=lambda call: (call.source.name, call.symbol)):
        name = call.source.name.replace("\\", "\\\\").replace('"', '\\"')
        before = texts.get(call.source, f'{_HEAD}#line 1 "{name}"\n{call.source.text}\n#line 1 "wrappers of nnefc"\n')
        texts[call.source] = before + call.wrapper
    return texts


def calls_c(func: tirx.PrimFunc) -> bool:
    """Return whether a kernel calls a function of a user's C file."""
    return bool(func.attrs) and C_CALL in func.attrs


def _call(func: tirx.PrimFunc) -> CCall:
    text, name, folder, function, *parameters = map(str, func.attrs[C_CALL])
    return CCall(CSource(text, name, folder), function, tuple(parameters))
