"""The C of libraries for machines without an operating system."""

from __future__ import annotations

import subprocess
from pathlib import Path

from runtime_samples import ZIG_CC

from nnefc.targets.link.toolchain import RUNTIME

NAMES = ("nearbyintf", "rintf", "floorf", "ceilf", "truncf", "roundf")

PROGRAM = """
#include <math.h>
#include <stdio.h>
#include <string.h>
{declared}
static int same(float a, float b) {{ return memcmp(&a, &b, 4) == 0 || (a != a && b != b); }}
int main(void) {{
    for (unsigned i = 0; i < 40000000u; i += 97) {{
        unsigned bits = i < 400000u ? i * 10737u : i * 2654435761u;
        float x = 0;
        if (i < 4000u) x = (float)((int)i - 2000) / 4;
        else memcpy(&x, &bits, 4);
        {compared}
    }}
    return 0;
}}
"""


def test_floats_are_rounded_as_the_c_library_does(tmp_path: Path) -> None:
    declared = "".join(f"float own_{name}(float x);\n" for name in NAMES)
    compared = "".join(f'if (!same({n}(x), own_{n}(x))) {{ printf("{n}(%a)", x); return 1; }}\n' for n in NAMES)
    (tmp_path / "main.c").write_text(PROGRAM.format(declared=declared, compared=compared))
    renamed = [f"-D{name}=own_{name}" for name in (*NAMES, "roundevenf")]
    own, program = tmp_path / "own.o", tmp_path / "program"
    source = RUNTIME / "bare" / "rounding.c"
    words = [*ZIG_CC, "-O2", "-fno-builtin", "-fno-sanitize=all"]
    subprocess.run([*words, *renamed, "-c", str(source), "-o", str(own)], check=True)
    subprocess.run([*words, str(tmp_path / "main.c"), str(own), "-lm", "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
