"""Chooses the names of variables in C: valid identifiers similar to TIR's names, unique within their scope."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = ["RESERVED", "Names", "identifier"]

_WORDS = (
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|register|"
    "restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while|"
    "alignas|alignof|and|and_eq|asm|bitand|bitor|bool|catch|class|compl|concept|const_cast|consteval|constexpr|constinit|"
    "co_await|co_return|co_yield|decltype|delete|dynamic_cast|explicit|export|false|friend|mutable|namespace|new|noexcept|"
    "not|not_eq|nullptr|operator|or|or_eq|private|protected|public|reinterpret_cast|requires|static_assert|static_cast|"
    "template|this|thread_local|throw|true|try|typeid|typename|typeof|using|virtual|wchar_t|xor|xor_eq|"
    "acos|asin|atan|atan2|atanh|acosh|asinh|ceil|copysign|cos|cosh|erf|erfc|exp|exp2|expm1|fabs|floor|fma|fmax|fmin|"
    "fmod|lgamma|log|log10|log1p|log2|pow|round|sin|sinh|sqrt|tan|tanh|tgamma|trunc|memcpy|memset|"
    "I|NAN|INFINITY|linux|unix|near|far|main|y0|y1|j0|j1|yn|jn|gamma|index|failed|arena|weights|texts|strcmp|strlen|memcmp"
)
RESERVED = frozenset(word for name in _WORDS.split("|") for word in (name, f"{name}f"))
"""Words of C and C++, macros that some compilers define, functions of C libraries that compilers warn about, and the
names of all functions' own parameters.
"""

_LONGEST = 40
"""Maximum characters of a name: the standard requires compilers to distinguish 63 only."""


def identifier(name: str) -> str:
    """Return a valid C identifier that is similar to a name."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)[:_LONGEST].strip("_")
    return made if re.match(r"[A-Za-z]", made) else f"v{made}"


class Names:
    """The names that are visible at one point of a function."""

    def __init__(self, taken: Iterable[str] = (), prefix: str = "") -> None:
        """Begin with names that are taken; all new names begin with `prefix`."""
        self._scopes: list[set[str]] = [set(taken)]
        self._prefix = prefix

    def fresh(self, name: str) -> str:
        """Return a name similar to the given one that is not visible yet, and take it."""
        wanted = f"{self._prefix}{identifier(name)}"
        made, number = wanted, 0
        while made in RESERVED or any(made in scope for scope in self._scopes):
            number += 1
            made = f"{wanted}_{number}"
        self._scopes[-1].add(made)
        return made

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Begin a block of statements; names that are taken in it are free after it."""
        self._scopes.append(set())
        try:
            yield
        finally:
            self._scopes.pop()
