"""Inputs for fuzzing the NNEF front end: seeds, and mutations that know the grammar, the operations and the files.

An input is bytes: the first says what the others are, see TARGETS.
"""

from __future__ import annotations

import io
import re
import struct
import tarfile
from random import Random
from typing import Any

import numpy as np
import test_nnef_against_khronos
import test_nnef_tract
import test_operations_compound
import test_operations_elementwise
import test_operations_roi
import test_operations_shape
import test_operations_window
from nnef_cases import Case, document
from nnef_language import FINAL
from nnef_targets import TARGETS
from nnef_tract import HEAD

from nnefc.frontends.nnef.declarations import MISSING, STANDARD, Operation, Parameter
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.frontends.nnef.language.signatures import spell_value
from nnefc.frontends.nnef.language.types import (
    ArrayType,
    Dialect,
    GenericType,
    PrimitiveType,
    TensorType,
    TupleType,
    Type,
)

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = ["nnefc.frontends.nnef"]

QUANTIZATIONS = (
    b'"x": linear_quantize(min = -1.5, max = 2e0, bits = 8);',
    b'"a": min_max_linear_quantize([-1.0, 0.0], 2.0, bits = 4, signed = true, symmetric = false); # a comment',
    b'"b": zero_point_linear_quantize([[3]], 0.5, bits = 4, signed = false, symmetric = true);\n"y": '
    b"logarithmic_quantize(max = 6.0, bits = 3);",
    b'"w": binary_quantize(0.0, negative_value = -2.0)\n"v": ternary_quantize(-0.5, 0.5);',
)

PROVISIONAL = """version 1.0
fragment twice( x: tensor, by: scalar = 0.5 ) -> ( y: tensor )
{ y = x * by + twice(x, by = by - 0.25) if by > 0.0 else x }
fragment block( x: tensor, scope: string, sizes: (extent,extent)[] = [(3,3)] ) -> ( y: tensor, z: tensor[] )
{
    w = variable(shape = [4, shape_of(x)[1]] + [s[0] for s in sizes if length_of(sizes) > 0] * 2, label = scope + '/w')
    y = relu(conv(x, w, padding = [(1,1), (1,1)]))
    z = [twice(x, by = scalar(i)) for i in range_of(sizes)] + [y]
}
graph g( x ) -> ( y )
{
    x = external(shape = [1,3,8,8])
    (a, [b, c]) = block(x, scope = 'first')
    d = conv_layer(a, channels = 2, size = [3,3], scope = "d")
    e = max_pool_layer(d, size = [2,2], stride = [2,2])
    y = softmax(e)
}
"""

STATE = f"""{FINAL}
fragment keep<? = scalar>(x: tensor<?>, v: ?[] = []) -> (y: tensor<?>) {{ y = copy(x) if v == [] else x; }}
graph g(x, i) -> (y, old, z)
{{
    x = external<scalar>(shape = [2, 3]);
    i = external<integer>(shape = [2]);
    s = variable<scalar>(shape = [2, 3], label = 'state/s');
    n = update(s, s + x);
    y = select(x < 1.0 && !(x == 0.0), gather(n, i, axis = 0), n ^ 2.0);
    old = copy(s);
    [p, q] = split(y, axis = 1, ratios = [1, 2]);
    z = concat([p * 2.0, q / -3.0], axis = 1);
    m, v = moments(keep<scalar>(z, v = [1.0]), axes = [for k in range_of(['a', 'b']) if k in [1] yield k]);
}}
"""


def _case_documents() -> list[str]:
    groups: list[tuple[list[Case], str]] = [
        (test_operations_elementwise.FINAL, "final"),
        (test_operations_elementwise.PROVISIONAL, "provisional"),
        (test_operations_shape.FINAL, "final"),
        (test_operations_shape.PROVISIONAL, "provisional"),
        (test_operations_compound.FINAL, "final"),
        (test_operations_compound.PROVISIONAL, "provisional"),
        (test_operations_roi.cases(), "final"),
        (test_operations_window.pool_cases(1, spatial_only=False), "final"),
        (test_operations_window.transposed_cases(1, output_shapes=True), "final"),
        (test_operations_window.conv_cases(1, "final"), "final"),
        (test_operations_window.deconv_cases(1, "final"), "final"),
    ]
    return [document([case], dialect)[0] for cases, dialect in groups for case in cases]


def _dynamic_documents() -> list[str]:
    """Tract's dialect."""
    return [
        f"{HEAD}{before}\ngraph network(x) -> (y)\n{{\nx = external(shape = {list(shape)});\n{body}\n}}\n"
        for before, body, shape, _ in test_nnef_tract.CASES.values()
    ]


def _tensor_files() -> list[bytes]:
    """Final headers as the project writes them, provisional ones by hand."""
    from tempfile import NamedTemporaryFile

    made = []
    arrays: list[Any] = [np.arange(6, dtype=kind).reshape(2, 3) for kind in ("f2", "f4", "f8", "u1", "i2", "i8", "u4")]
    for array in [*arrays, np.array([True, False, True]), np.float32(1.5), np.zeros((1,) * 8, "i4")]:
        with NamedTemporaryFile() as file:
            write_tensor(file.name, array)
            made.append(file.read())
    text = b"linear_quantize(-1.0, 1.0, bits = 8)"
    for kind, bits, algorithm, data in ((0, 32, b"", b"\0" * 24), (1, 8, text, b"\x07" * 6), (3, 1, b"", b"\xaa")):
        head = struct.pack("<III", 16 + 8 + len(algorithm), 2, 2) + struct.pack("<I", 3)
        made.append(b"\x4e\xef\x01\x00" + head + struct.pack("<BBH", kind, bits, len(algorithm)) + algorithm + data)
    return made


def _archives(tensors: list[bytes]) -> list[bytes]:
    made = []
    text = b"""version 1.0; graph g(x) -> (y)
    {
        x = external(shape = [2,3]);
        w = variable(shape = [2,3], label = 'a/w');
        y = mul(x, w);
    }"""
    for mode, prefix, weights in (("w", "", tensors[1]), ("w:gz", "net/", tensors[0]), ("w", "./", tensors[-2])):
        file = io.BytesIO()
        members = [("graph.nnef", text), ("a/w.dat", weights), ("graph.quant", b'"w": linear_quantize(0.0, 1.0, 8);')]
        with tarfile.open(fileobj=file, mode=mode) as packed:  # type: ignore[call-overload]
            for name, content in members:
                info = tarfile.TarInfo(prefix + name)
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
        made.append(file.getvalue())
    return made


def seeds() -> list[bytes]:
    """Valid inputs of every kind."""
    handwritten = [
        f"{FINAL}{fragments}\ngraph g(x) -> (y) {{ x = external(shape = [2,3,8,8]); {body} }}"
        for fragments, body, _ in test_nnef_against_khronos.HANDWRITTEN.values()
    ]
    documents = [PROVISIONAL, STATE, *handwritten, *_case_documents()]
    tensors = _tensor_files()
    return [
        *[b"D" + text.encode() for text in documents if len(text) < 4000],
        *[b"Y" + text.encode() for text in _dynamic_documents()],
        *[b"Q" + text for text in QUANTIZATIONS],
        *[b"T" + data for data in tensors],
        *[b"A" + data for data in _archives(tensors)],
    ]


TOKEN = re.compile(
    rb"[A-Za-z_][A-Za-z0-9_]*|[0-9.]+(?:[eE][+-]?[0-9]+)?|'[^'\n]*'|\"[^\"\n]*\"|->|[<>=!]=|&&|\|\||\S|\s+"
)

WORDS = [
    *b"""
    graph fragment tensor scalar integer extent logical string true false shape_of length_of range_of for in if else
    yield version extension tensor<?> tensor<integer> tensor<logical> tensor<> <?> ? [] [ ] ( ) { } , ; : = -> + - * /
    ^ < <= > >= == != && || ! x y w a b external variable constant update shape label value axis axes size padding
    KHR_enable_fragment_definitions KHR_enable_operator_expressions '' 'constant' 'ignore' 'reflect' 'replicate'
    'reflect-even' 'aligned' 'symmetric' stride dilation groups output_shape begin end border items
    """.split(),
    *(operation.name.encode() for operation in STANDARD),
    b"'a' * 3",
    b"('\"' + \"'\")",
    b"\xc3\xa9",
    b"\0",
    b"# comment\n",
    b"'unclosed",
]

NUMBERS = (
    *(b"0 1 2 3 4 5 7 8 16 100 255 1000 65536 2147483647 2147483648 4294967296 9223372036854775807").split(),
    *(b"9223372036854775808 99999999999999999999 -1 -2 -9223372036854775808 0.0 1.0 0.5 -0.5 1e38 1e39 1e308").split(),
    *(b"1e309 1e-45 1e-400 1. 1.0e+2 00 007 1000000 4194304 4194305 100000000").split(),
)


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A neighbour of an input, of the same kind; sometimes a new document."""
    kind, content = data[:1], data[1:]
    if kind == b"D" and random.random() < 0.15:
        return b"D" + random_document(random).encode()
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        match kind:
            case b"D" | b"Y" if random.random() < 0.92:
                content = _change_text(content, random, corpus)
            case b"Q" if random.random() < 0.8:
                content = _change_tokens(content, random)
            case b"T" if random.random() < 0.7:
                content = _change_header(content, random)
            case b"A" if random.random() < 0.7:
                content = _change_archive(content, random, corpus)
            case _:
                content = _change_bytes(content, random)
    return kind + content


def _change_bytes(data: bytes, random: Random) -> bytes:
    at, length = random.randrange(len(data) + 1), random.choice((1, 1, 2, 4, 16, 200))
    match random.randrange(5):
        case 0:
            return data[:at] + data[at + length :]
        case 1:
            return data[:at] + random.randbytes(length) + data[at:]
        case 2:
            return data[:at] + random.randbytes(length) + data[at + length :]
        case 3:
            return data[:at] + data[at : at + length] * random.choice((2, 3, 50)) + data[at + length :]
        case _:
            return data[:at]


def _change_tokens(data: bytes, random: Random) -> bytes:
    tokens = TOKEN.findall(data) or [b""]
    i, j = random.randrange(len(tokens)), random.randrange(len(tokens))
    numbers = [k for k, token in enumerate(tokens) if token[:1].isdigit()]
    match random.randrange(9):
        case 0:
            tokens[i : i + random.choice((1, 1, 2, 5))] = []
        case 1:
            tokens.insert(i, b" " + random.choice(WORDS) + b" ")
        case 2:
            tokens[i] = b" " + random.choice(WORDS) + b" "
        case 3:
            tokens[i] = tokens[j]
        case 4:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        case 5 | 6 if numbers:
            tokens[random.choice(numbers)] = random.choice(NUMBERS)
        case 7:
            opening, closing = random.choice((b"()", b"[]", b"{}")), random.choice((1, 2, 40, 300))
            tokens[i] = opening[:1] * closing + tokens[i] + opening[1:] * closing
        case _:
            tokens[i : i + 8] = tokens[i : i + 8] * random.choice((2, 3, 30))
    return b"".join(tokens)


def _change_text(text: bytes, random: Random, corpus: list[bytes]) -> bytes:
    match random.randrange(6):
        case 0:  # a statement more, before the last bracket
            end = text.rfind(b"}")
            tensors = {name.decode(): "scalar" for name in re.findall(rb"(\w+) = ", text)}
            statement = random_statement(random, f"t{random.randrange(99)}", tensors, Dialect.FINAL)
            return text[:end] + statement.encode() + b"\n" + text[end:]
        case 1:  # a part of another document
            other = random.choice(corpus)
            if other[:1] != b"D":
                return text
            pieces, others = re.split(rb"([;{}\n])", text), re.split(rb"([;{}\n])", other[1:])
            pieces[random.randrange(len(pieces))] = b"".join(others[random.randrange(len(others)) :][:3])
            return b"".join(pieces)
        case _:
            return _change_tokens(text, random)


def _change_header(data: bytes, random: Random) -> bytes:
    """One of the 32-bit fields of a tensor file's header set to a number that means trouble."""
    fields = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 64, 128, 255, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 30, len(data))
    at = 4 * random.randrange(1, 33)
    return data[:at] + struct.pack("<I", random.choice(fields)) + data[at + 4 :]


_MEMBERS = ("../x", "/etc/passwd", "a/../../b", "graph.nnef", "a/w.dat", "\udcff", "a" * 300, "")


def _change_archive(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A member replaced by a mutated or another one; the sums of the headers are right again."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            members = [(info, packed.extractfile(info)) for info in packed.getmembers()[:10]]
            contents = [(info, file.read(1 << 16) if file else b"") for info, file in members]
    except Exception:
        return _change_bytes(data, random)
    made = io.BytesIO()
    chosen = random.randrange(len(contents) or 1)
    try:
        with tarfile.open(fileobj=made, mode=random.choice(("w", "w", "w:gz"))) as packed:  # type: ignore[call-overload]
            for i, (info, content) in enumerate(contents):
                if i == chosen:
                    match random.randrange(5):
                        case 0:
                            kind = {"t": b"T", "f": b"D"}.get(info.name[-1:], b"Q")
                            content = mutate(kind + content, random, corpus)[1:]
                        case 1:
                            names = (
                                "../x",
                                "/etc/passwd",
                                "a/../../b",
                                "graph.nnef",
                                "a/w.dat",
                                "\udcff",
                                "a" * 300,
                                "",
                            )
                            info.name = random.choice(names)
                        case 2:
                            info.type = random.choice((b"0", b"1", b"2", b"3", b"5", b"6", b"7", b"L", b"x", b"S"))
                            info.linkname = random.choice(("graph.nnef", "/etc/passwd", "../../x"))
                        case 3:
                            continue
                        case _:
                            content = random.choice(corpus)[1:]
                info.size = len(content) if info.isreg() else 0
                packed.addfile(info, io.BytesIO(content) if info.isreg() else None)
    except (ValueError, tarfile.TarError):
        return _change_bytes(data, random)
    return made.getvalue()


# Documents made of any operations with arguments of the right type, most of them of a sensible size.

_BORDERS = ("constant", "ignore", "replicate", "reflect", "reflect-even")
_STRINGS = (*_BORDERS, "symmetric", "asymmetric", "aligned", "integer", "", "w", "a/b")


def random_document(random: Random) -> str:
    dialect = random.choice(tuple(Dialect))
    tensors = {}
    lines = []
    for name in ("x", "i", "c"):
        content = {"x": "scalar", "i": "integer", "c": "logical"}[name]
        shape = [random.choice((1, 2, 3, 4, 5, 8)) for _ in range(random.choice((0, 1, 2, 3, 4, 4, 4, 5)))]
        lines.append(f"{name} = external<{content}>(shape = {shape});")
        tensors[name] = content
    if dialect is Dialect.PROVISIONAL:  # which has real inputs only
        lines = [line.replace("<scalar>", "").replace("<integer>", "").replace("<logical>", "") for line in lines]
        lines.append("c2 = x < 1.0;")
        tensors = {"x": "scalar", "i": "scalar", "c": "scalar", "c2": "logical"}
    for number in range(random.randint(1, 6)):
        lines.append(random_statement(random, f"t{number}", tensors, dialect))
    outputs = ", ".join(random.sample(sorted(tensors), min(len(tensors), random.randint(1, 2))))
    body = "\n    ".join(lines)
    return (
        f"{FINAL if dialect is Dialect.FINAL else 'version 1.0'}\ngraph g(x, i, c) -> ({outputs})\n{{\n    {body}\n}}\n"
    )


def random_statement(random: Random, name: str, tensors: dict[str, str], dialect: Dialect) -> str:
    """An invocation of any operation; `tensors` gets its results."""
    operation = random.choice([operation for operation in STANDARD if dialect in operation.dialects])
    content = random.choice(("scalar", "scalar", "integer", "logical"))
    arguments = [
        f"{parameter.name} = {_argument(random, parameter, tensors, content)}"
        for parameter in operation.signature.parameters
        if parameter.default is MISSING or random.random() < 0.5
    ]
    generic = f"<{content}>" if operation.signature.generic and dialect is Dialect.FINAL else ""
    return f"{_results(random, operation, name, tensors, content)} = {operation.name}{generic}({', '.join(arguments)});"


def _results(random: Random, operation: Operation, name: str, tensors: dict[str, str], content: str) -> str:
    spelled = []
    for k, result in enumerate(operation.signature.results):
        match result.type:
            case ArrayType(TensorType(of)):
                names = [f"{name}_{k}_{j}" for j in range(random.randint(1, 3))]
                spelled.append(f"[{', '.join(names)}]")
            case TensorType(of):
                names = [f"{name}_{k}"]
                spelled.append(names[0])
            case _:
                raise AssertionError(result)
        tensors.update(dict.fromkeys(names, content if of in ("?", "") else of))
    return ", ".join(spelled)


def _argument(random: Random, parameter: Parameter, tensors: dict[str, str], content: str) -> str:
    if parameter.name == "label":
        return repr(random.choice(("w", "v", "a/b")))
    return _value(random, parameter.type, tensors, content)


def _value(random: Random, type_: Type, tensors: dict[str, str], content: str) -> str:
    match type_:
        case TensorType(of):
            wanted = content if of in ("?", "") else of
            fitting = [name for name, its in tensors.items() if its == wanted]
            if fitting and random.random() < 0.85:
                return random.choice(fitting)
            return _value(random, PrimitiveType(wanted), tensors, content)
        case ArrayType(element):
            assert element is not None
            length = random.choice((0, 1, 1, 2, 2, 3, 4, 4, 4, 5))
            return f"[{', '.join(_value(random, element, tensors, content) for _ in range(length))}]"
        case TupleType(elements):
            return f"({', '.join(_value(random, element, tensors, content) for element in elements)})"
        case GenericType():
            return _value(random, PrimitiveType(content), tensors, content)
        case PrimitiveType("integer"):
            return str(
                random.choice((-1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 8, random.choice((-3, 99, 2**31, 2**63 - 1))))
            )
        case PrimitiveType("scalar"):
            return spell_value(random.choice((0.0, 0.5, 1.0, -1.0, 2.0, 1e-5, 1e30)))
        case PrimitiveType("logical"):
            return random.choice(("true", "false"))
        case PrimitiveType("string"):
            return spell_value(random.choice(_STRINGS))
    raise AssertionError(type_)
