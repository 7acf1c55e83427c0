"""Conversions of float16 on machines that have no instructions for them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from relax_programs import network_of, program, target

from nnefc.driver.compile import compile_network
from nnefc.targets.link.toolchain import RUNTIME

_OLD = target("x86-64")

THERE_AND_BACK = """x: float16[{n}] -> y
a = R.astype(x, "float32")
b = R.exp(a)
y = R.astype(b, "float16")"""


def _same(made: np.ndarray, expected: np.ndarray) -> None:
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(made), ~known)
    np.testing.assert_array_equal(made[known].view(f"u{made.itemsize}"), expected[known].view(f"u{made.itemsize}"))


def test_every_float16_is_converted_exactly() -> None:
    fp16_values = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    network = network_of(program('x: float16[65536] -> y\ny = R.astype(x, "float32")'))
    _same(compile_network(network, _OLD).run({"x": fp16_values})["y0"], fp16_values.astype(np.float32))


def test_numbers_are_rounded_to_float16_as_ieee_754_says() -> None:
    """Each positive float16, the middle to the next one, and what lies right next to both; some other numbers."""
    low = np.arange(0x7C00).astype(np.uint16).view(np.float16).astype(np.float64)
    middles = np.append((low[:-1] + low[1:]) / 2, 65520.0)
    positions = np.concatenate([low, middles]).astype(np.float32)
    near = np.concatenate([np.nextafter(positions, np.float32(side)) for side in (-np.inf, np.inf)])
    bits = np.random.default_rng(0).integers(0, 1 << 32, 9999, dtype=np.uint64).astype(np.uint32).view(np.float32)
    some = np.array([np.inf, np.nan, 0, 1e-45, 65536, 3e38], np.float32)
    payloads = np.array([0x7F800001, 0x7FFFEFFF, 0x7FFFF000, 0x7FFFFFFF], np.uint32).view(np.float32)
    x = np.concatenate([positions, near, bits, some, payloads])
    x = np.concatenate([x, -x])
    network = network_of(program(f'x[{x.size}] -> y\ny = R.astype(x, "float16")'))
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    _same(compile_network(network, _OLD).run({"x": x})["y0"], expected)


def test_kernels_that_narrow_are_compiled_for_webassembly(tmp_path: Path) -> None:
    """LLVM's own conversion never ends here."""
    network = network_of(program(THERE_AND_BACK.format(n=33)))
    compile_network(network, target("wasm32-wasi")).export(tmp_path / "exp.wasm")
    if shutil.which("node") is None:
        pytest.skip("needs: node")
    x = np.linspace(-12, 11, 33).astype(np.float16)
    text = f"""import {{ load }} from "{(RUNTIME / "nnefc.mjs").as_uri()}";
        const model = await load("{tmp_path / "exp.wasm"}");
        const y = model.run([Uint16Array.from({x.view(np.uint16).tolist()})]).y0;
        console.log(JSON.stringify([...new Uint16Array(y.buffer, y.byteOffset, 33)]))"""
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", text], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    made = np.array(json.loads(done.stdout), np.uint16).view(np.float16)
    np.testing.assert_allclose(made.astype(np.float32), np.exp(x.astype(np.float32)), rtol=1e-3, atol=6e-8)
