"""What modules of WebAssembly have in place of a C library: memory, and the writing of messages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from runtime_samples import C_SOURCES

from nnefc.targets.link.linking import linking_for
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import zig
from nnefc.targets.machine.system import FileFormat

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs: node")

THREADS = "baseline+atomics+bulk_memory"


def module(folder: Path, source: Path, names: Sequence[str], cpu: str = "baseline") -> Path:
    """A module of a C file and what stands in for a C library, which has these functions."""
    linking = linking_for(FileFormat.WASM, cpu)
    assert linking.alone is not None
    own = [RUNTIME / name for name in (*linking.alone.sources, "machine/system.c", "messages.c", "threads/workers.c")]
    command = [*zig(), "cc", "-target", "wasm32-wasi", f"-mcpu={cpu}"]
    objects = [folder / f"{number}.o" for number in range(len(own) + 1)]
    for file, code in zip([source, *own], objects, strict=True):
        flags = [*linking.compile_flags, "-O2", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}"]
        flags += ["-fno-builtin-malloc", "-fno-builtin-calloc"]  # calls of which are left out if the memory is unused
        subprocess.run([*command, *flags, "-c", file, "-o", code], check=True)
    flags = [*linking.link_flags, *linking.name_flags("test.wasm", names, folder)]
    path = folder / "test.wasm"
    subprocess.run([*command, "-nostdlib", *flags, *objects, "-o", path], check=True)
    if linking.linked is not None:
        linking.linked(path)
    return path


def answer(path: Path, text: str) -> Any:
    """What a program prints as JSON, to which `module`, and `instance` on a memory, are given."""
    head = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ Worker }} from "node:worker_threads";
        const module = new WebAssembly.Module(readFileSync("{path}"));
        const instance = (memory) => {{
          const {{ exports }} = new WebAssembly.Instance(module, {{ env: {{ memory }} }});
          exports._initialize();
          return exports;
        }};
    """
    command = ["node", "--input-type=module", "--eval", head + text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ["_initialize", "use_memory", "is_whole", "heap", "exhaust"]
    return module(tmp_path_factory.mktemp("memory"), C_SOURCES / "wasm_memory.c", names)


def test_memory_is_what_its_users_take_it_for_and_whole_again_in_the_end(memory: Path) -> None:
    """Aligned, exclusive, zero where that was asked for."""
    text = """
        const used = instance(), found = [];
        for (let seed = 1; seed < 30; seed++) {
          found.push(used.use_memory(seed, 3000), used.is_whole(used.heap(), used.memory.buffer.byteLength));
        }
        console.log(JSON.stringify(found));
    """
    assert set(answer(memory, text)) == {0}


def test_the_program_may_take_memory_in_between(memory: Path) -> None:
    text = """
        const used = instance(), found = [];
        for (let seed = 1; seed < 10; seed++) {
          found.push(used.use_memory(seed, 1000));
          const from = used.memory.grow(1) << 16;
          new Uint8Array(used.memory.buffer, from, 1 << 16).fill(seed);
          found.push(used.use_memory(100 + seed, 3000), used.use_memory(200 + seed, 3000));
          found.push(...new Set(new Uint8Array(used.memory.buffer, from, 1 << 16).map((byte) => byte - seed)));
        }
        console.log(JSON.stringify(found));
    """
    assert set(answer(memory, text)) == {0}


def test_what_there_is_no_room_for_is_refused(memory: Path) -> None:
    assert answer(memory, "console.log(instance().exhaust())") == 0


def test_threads_take_memory_at_the_same_time(tmp_path: Path) -> None:
    names = ["_initialize", "use_in_threads"]
    path = module(tmp_path, C_SOURCES / "wasm_memory.c", names, THREADS)
    text = """
        const note = new DataView(WebAssembly.Module.customSections(module, "nnefc.memory")[0]);
        const [initial, maximum] = [note.getUint32(0, true), note.getUint32(4, true)];
        const memory = new WebAssembly.Memory({ initial, maximum, shared: true }), used = instance(memory);
        const run = "import { workerData } from 'node:worker_threads'; const { module, memory, thread } = workerData;" +
          "new WebAssembly.Instance(module, { env: { memory } }).exports.nnefc_run_lent(thread);";
        for (let i = 0; i < 3; i++) {
          const thread = used.nnefc_lend(), workerData = { module, memory, thread };
          const worker = new Worker(run, { eval: true, workerData });
          await new Promise((resolve) => worker.once("online", resolve));
          used.nnefc_lent(thread);
        }
        console.log(used.use_in_threads());
        process.exit();
    """
    assert answer(path, text) == 0


LONG, INT32 = (0, 7, -1, 2**63 - 1, -(2**63)), (0, 7, -1, 2**31 - 1, -(2**31))
UNSIGNED_LONG, UNSIGNED = (0, 9, 2**64 - 1), (0, 10, 2**32 - 1)
MESSAGES = [
    ("nothing to fill in", ()),
    ("", ()),
    *[("%lld", (value,)) for value in LONG],
    *[("<%d>", (value,)) for value in INT32],
    *[(form, (value,)) for value in UNSIGNED_LONG for form in ("%llu", "%llx")],
    *[("%u", (value,)) for value in UNSIGNED],
    *[("%s and %.3s and %.200s", (text, text, text)) for text in ("", "ab", "abcdef")],
    *[("%.*s%s", (maximum, "abcdef", "!")) for maximum in (0, 1, 6, 9)],
    ('input "%.200s" has %lld elements, %s %d', ("x" * 250, 2**40, "not", 12)),
]
"""Formats, and what is filled in."""

_TYPES = {"lld": "long long", "d": "int", "llu": "unsigned long long", "llx": "unsigned long long", "u": "unsigned"}
_CONVERSION = re.compile(r"%(?:\.(?P<precision>\d+|\*))?(?P<type>ll[dux]|[dus])")


def call(form: str, given: Sequence[object]) -> str:
    """The arguments after a format, as C."""
    texts, tail = [], list(given)
    for conversion in _CONVERSION.finditer(form):
        if conversion["precision"] == "*":
            texts.append(str(tail.pop(0)))
        value = tail.pop(0)
        as_c = json.dumps(value) if isinstance(value, str) else f"{int(str(value)) % 2**64}ull"
        texts.append(as_c if conversion["type"] == "s" else f"({_TYPES[conversion['type']]}){as_c}")
    assert not tail
    return "".join(f", {text}" for text in texts)


@pytest.mark.parametrize("size", [0, 1, 8, 400])
def test_messages_are_those_of_a_c_library(size: int, tmp_path: Path) -> None:
    """Cut, and ended, where there is no more room; the answer is the whole one's length."""
    calls = "\n".join(
        f"case {number}: return nnefc_snprintf(text, {size}, {json.dumps(form)}{call(form, given)});"
        for number, (form, given) in enumerate(MESSAGES)
    )
    source = tmp_path / "write.c"
    source.write_text(f"""#include "messages.h"
        char text[512];
        char *begin(void);
        char *begin(void) {{
            for (int i = 0; i < 512; i++) text[i] = '#';
            return text;
        }}
        int write(int number);
        int write(int number) {{
            switch (number) {{ {calls} }}
            return -1;
        }}""")
    path = module(tmp_path, source, ["_initialize", "begin", "write"])
    found = answer(
        path,
        f"""
        const used = instance(), found = [];
        for (let i = 0; i < {len(MESSAGES)}; i++) {{
          const text = used.begin(), length = used.write(i);
          found.push([length, Buffer.from(used.memory.buffer, text, 512).toString("latin1")]);
        }}
        console.log(JSON.stringify(found));
        """,
    )
    whole = [form.replace("%ll", "%") % given for form, given in MESSAGES]
    cut = [f"{text[: size - 1]}\0" if size > 0 else "" for text in whole]
    assert found == [[len(text), shown.ljust(512, "#")] for text, shown in zip(whole, cut, strict=True)]


def test_no_message_of_the_runtime_needs_more() -> None:
    """Files that write messages have nothing else of <stdio.h>; what a format has is known."""
    looked_at = 0
    for path in sorted({*RUNTIME.rglob("*.c"), *RUNTIME.rglob("*.h")}):
        text = re.sub(r"__asm__[^;]*;", "", path.read_text())
        if "#include <stdio.h>" in text or path.parent.name in {"cuda", "windows", "bare", "chat"}:
            continue  # theirs are written by the C library
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text):
            assert "%" not in _CONVERSION.sub("", literal), f"{path.name}: {literal}"
            looked_at += "%" in literal
    assert looked_at > 30
