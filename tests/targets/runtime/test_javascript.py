"""The loader of WebAssembly, and the example that uses it, in Node.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from relax_programs import network_of, opened, program, target

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.ir.network import Network, State
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import zig

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs: node")

Run = Callable[[str], object]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wasm") / "digits.wasm"
    nnefc.compile(DIGITS / "model.nnef", "wasm32-wasi").export(path)
    return path


def node(text: str) -> subprocess.CompletedProcess[str]:
    head = f'import {{ load, NnefcError }} from "{(RUNTIME / "nnefc.mjs").as_uri()}";\n'
    command = ["node", "--input-type=module", "--eval", head + text]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def answer(text: str) -> object:
    """What a program prints as JSON."""
    done = node(text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_model_describes_itself(digits: Path) -> None:
    found = answer(
        f'const m = await load("{digits}");'
        "console.log(JSON.stringify([m.name, m.target, m.inputs, m.outputs, m.states, m.constantBytes > 0]))"
    )
    assert isinstance(found, list)
    assert found[:2] == ["digits", "wasm32-wasi"]
    assert [(t["name"], t["type"], t["shape"], t["bytes"]) for t in found[2]] == [
        ("image", "float32", [1, 1, 8, 8], 256)
    ]
    assert [(t["name"], t["shape"]) for t in found[3]] == [("probability", [1, 10])]
    assert found[4:] == [[], True]


def test_results_are_those_of_the_library_here(digits: Path) -> None:
    """Of a path, of an URL and of bytes, with inputs by name and in order."""
    image = np.load(DIGITS / "test.npz")["images"][:1].astype(np.float32) / 16
    found = answer(
        f"const image = Float32Array.from({image.ravel().tolist()}), path = '{digits}', found = [];"
        "const { readFileSync } = await import('node:fs');"
        "for (const source of [path, new URL('file://' + path), readFileSync(path)])"
        "  for (const inputs of [{ image }, [image]])"
        "    found.push([...(await load(source)).run(inputs).probability]);"
        "console.log(JSON.stringify(found))"
    )
    with nnefc.compile(DIGITS / "model.nnef").load() as here:
        np.testing.assert_allclose(found, np.repeat(here(image), 6, 0), atol=2e-5)


def test_a_pipe_is_read_to_its_end(digits: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cp", digits, tmp_path / "pipe"]) as writer:
        try:
            assert answer(f'console.log(JSON.stringify((await load("{tmp_path / "pipe"}")).name))') == "digits"
        finally:
            writer.kill()


def test_a_file_is_read_without_what_node_takes_long_to_load(digits: Path) -> None:
    found = answer(
        'for (const name of ["Response", "fetch"])'
        ' Object.defineProperty(globalThis, name, { get() { throw new Error("asked for " + name); } });'
        f'console.log(JSON.stringify((await load("{digits}")).name))'
    )
    assert found == "digits"


@pytest.fixture(scope="module")
def threaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wasm") / "digits.wasm"
    nnefc.compile(DIGITS / "model.nnef", "wasm32-threads").export(path)
    return path


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.sample(1)
def test_a_module_with_threads_computes_the_same_on_any_number_of_them(
    digits: Path, threaded: Path, threads: int
) -> None:
    found = answer(
        "const image = Float32Array.from({length: 64}, (_, i) => (i * 7) % 16 / 16), results = [];"
        f'for (const file of ["{digits}", "{threaded}"]) {{'
        f"  const model = await load(file, {{ threads: {threads} }}), other = model.session();"
        "  for (const each of [model, other, model]) results.push([...each.run([image]).probability]);"
        "  model.close(); results.push([...other.run([image]).probability]); other.close(); }"
        "console.log(JSON.stringify(results))"
    )
    assert isinstance(found, list)
    assert len(found) == 8
    assert all(result == found[0] for result in found)


def test_a_module_with_threads_runs_on_one_where_memory_is_not_shared_with_workers(threaded: Path) -> None:
    found = answer(
        "const { Worker } = await import('node:worker_threads');"
        "const { syncBuiltinESMExports } = await import('node:module');"
        "(await import('node:worker_threads')).default.Worker = class { constructor() { throw new Error('no') } };"
        "syncBuiltinESMExports();"
        f'const m = await load("{threaded}", {{ threads: 3 }});'
        "console.log(JSON.stringify(m.run([new Float32Array(64)]).probability.length))"
    )
    assert found == 10


NOTED_WORKERS = """
    const threads = (await import("node:worker_threads")).default, workers = [];
    const { syncBuiltinESMExports } = await import("node:module");
    threads.Worker = class extends threads.Worker {
      constructor(script, options) {
        super(BREAKS ? "setInterval(() => {}, 1000)" : script, options);
        workers.push(new Promise((resolve) => this.once("exit", resolve)));
        if (BREAKS) setTimeout(() => this.emit("error", new Error("no")));
      }
    };
    syncBuiltinESMExports();
"""


def test_workers_that_do_not_begin_are_ended(threaded: Path) -> None:
    found = answer(
        f'const BREAKS = true; {NOTED_WORKERS} const m = await load("{threaded}", {{ threads: 3 }});'
        "await Promise.all(workers);"
        "console.log(JSON.stringify([workers.length, m.run([new Float32Array(64)]).probability.length]))"
    )
    assert found == [2, 10]


def test_no_workers_are_left_of_a_module_that_cannot_be_loaded(threaded: Path) -> None:
    found = answer(
        f"const BREAKS = false; {NOTED_WORKERS} const {{ instantiate }} = WebAssembly;"
        "WebAssembly.instantiate = async (...given) =>"
        " ({ exports: { ...(await instantiate(...given)).exports, nnefc_describe: () => 0 } });"
        f'let message; try {{ await load("{threaded}", {{ threads: 3 }}) }} catch (error) {{ message = error.message }}'
        "await Promise.all(workers); console.log(JSON.stringify([workers.length, message]))"
    )
    assert isinstance(found, list)
    assert found[0] == 2 and "version 0 of nnefc's interface" in found[1]


def test_nothing_is_left_of_a_session_without_memory_for_its_tensors(digits: Path) -> None:
    found = answer(
        "const { instantiate } = WebAssembly; let left = 9, held = 0, destroyed = 0;"
        "WebAssembly.instantiate = async (...given) => {"
        " const { exports } = await instantiate(...given); return { exports: {"
        "  ...exports,"
        "  malloc: (bytes) => (left-- > 0 ? (held++, exports.malloc(bytes)) : 0),"
        "  free: (address) => { held -= address !== 0; exports.free(address); },"
        "  nnefc_destroy: (session) => { destroyed++; return exports.nnefc_destroy(session); } } }; };"
        f'const m = await load("{digits}"), before = held, messages = [];'
        "for (left of [1, 2, 3]) try { m.session(); } catch (error) { messages.push(error.message); }"
        "console.log(JSON.stringify([messages, held - before, destroyed]))"
    )
    assert found == [[f"no memory for {size} bytes" for size in (256, 40, 8)], 0, 3]


def test_the_first_module_is_loaded_that_the_engine_can_run(digits: Path) -> None:
    found = answer(
        f'const lacking = {{ source: "none.wasm", needs: "relaxed-simd" }}, supported = "{digits}";'
        "const { supports } = await import(" + json.dumps((RUNTIME / "nnefc.mjs").as_uri()) + ");"
        "const model = await load(supports('relaxed-simd') ? [supported] : [lacking, supported]);"
        "const messages = ['simd', 'toString'].map((name) => {"
        "  try { supports(name) } catch (error) { return error.message } });"
        "console.log(JSON.stringify([model.target, supports('atomics'), ...messages]))"
    )
    known = "relaxed-simd, atomics, relaxed-udot, relaxed-sdot"
    messages = [f'unknown feature "{name}": say one of {known}' for name in ("simd", "toString")]
    assert found == ["wasm32-wasi", True, *messages]


@pytest.mark.parametrize(
    ("dot", "features"),
    [
        ("(a, b) => 4 * a * (b & 255)", ["relaxed-udot"]),
        ("(a, b) => 4 * a * ((b << 24) >> 24)", ["relaxed-sdot"]),
        ("(a, b) => 2 * Math.max(-32768, Math.min(32767, 2 * a * (b & 255)))", []),
        ("(a, b) => 2 * Math.max(-32768, Math.min(32767, 2 * a * ((b << 24) >> 24)))", []),
    ],
    ids=["unsigned", "signed", "unsigned, saturated", "signed, saturated"],
)
def test_dot_products_of_bytes_are_reported_by_their_sums(dot: str, features: list[str]) -> None:
    found = answer(
        "const { supports } = await import(" + json.dumps((RUNTIME / "nnefc.mjs").as_uri()) + ");"
        "WebAssembly.validate = () => true; WebAssembly.Module = class {};"
        f"WebAssembly.Instance = class {{ exports = {{ dot: {dot} }} }};"
        "console.log(JSON.stringify(['relaxed-udot', 'relaxed-sdot'].filter(supports)))"
    )
    assert found == features


@pytest.mark.parametrize("feature", ["relaxed-udot", "relaxed-sdot"])
def test_engines_without_relaxed_dot_products_support_none(feature: str) -> None:
    found = answer(
        "const { supports } = await import(" + json.dumps((RUNTIME / "nnefc.mjs").as_uri()) + ");"
        f"WebAssembly.validate = () => false; console.log(JSON.stringify(supports('{feature}')))"
    )
    assert found is False


def test_a_module_comes_from_a_server(digits: Path) -> None:
    text = (
        "const { createServer } = await import('node:http'), { readFileSync } = await import('node:fs');"
        "const server = createServer((request, answer) => {"
        "  answer.statusCode = request.url === '/none' ? 404 : 200;"
        f'  answer.end(readFileSync("{digits}")); }}).listen(0, "127.0.0.1");'
        "await new Promise((resolve) => server.once('listening', resolve));"
        "const at = `http://127.0.0.1:${server.address().port}/`, names = [];"
        "for (const source of [at + 'one', await fetch(at + 'one'), at + 'none'])"
        "  names.push(await load(source).then((model) => model.name, (error) => error.message.split(' ').pop()));"
        "server.close(); console.log(JSON.stringify(names))"
    )
    assert answer(text) == ["digits", "digits", "Found"]


@pytest.mark.parametrize("name", ["wasm32-wasi", "wasm32-threads"])
@pytest.mark.sample(1)
def test_many_trained_values_are_read_into_memory_as_they_arrive(name: str, tmp_path: Path) -> None:
    weights = np.random.default_rng(1).standard_normal((520, 530)).astype(np.float32)
    network = network_of(program("x[1, 520] -> y\ny = R.matmul(x, w)", w=weights))
    path = tmp_path / "large.wasm"
    compile_network(network, target(name)).export(path)
    found = answer(
        "const { createServer } = await import('node:http'), { readFileSync } = await import('node:fs');"
        f'const path = "{path}", bytes = readFileSync(path), module = await WebAssembly.compile(bytes);'
        "const server = createServer((request, answer) => {"
        "  for (let at = 0; at < bytes.length; at += 100000) answer.write(bytes.subarray(at, at + 100000));"
        "  answer.end(); }).listen(0, '127.0.0.1');"
        "await new Promise((resolve) => server.once('listening', resolve));"
        "const x = Float32Array.from({ length: 520 }, (_, i) => Math.sin(i)), found = [];"
        "for (const source of [path, bytes, module, module, `http://127.0.0.1:${server.address().port}/`]) {"
        "  const model = await load(source, { threads: 2 }); found.push([...model.run([x])[model.outputs[0].name]]);"
        "  model.close(); }"
        "for (const end of [-1000, -100]) await load(bytes.subarray(0, end)).catch((e) => found.push(e.message));"
        "server.close(); console.log(JSON.stringify(found))"
    )
    assert isinstance(found, list)
    expected = np.sin(np.arange(520), dtype=np.float64) @ weights
    np.testing.assert_allclose(found[0], expected[None][0], atol=1e-4)
    assert all(result == found[0] for result in found[1:5])
    assert len(found) == 7
    assert all("the module ends after" in message for message in found[5:])


HOSTILE = {
    # sections, as lists in JavaScript: what the error says
    "[0, 2, ...name, 0, 0]": "nnefc.constants has no address",
    **{f"[0, {16 + size}, ...name, ...[1, 2, 3].slice(0, {size})]": "has no address" for size in range(4)},
    "[0, 24, ...name, 0, 0]": "has no address",  # the file ends
    "[0, 16 + 4 + 30, ...name, 0, 0, 16, 0, 1, 2]": "the module ends after 2 of 30 bytes",
    "[0, 16 + 4 + 4, ...name, 254, 255, 255, 255, 1, 2, 3, 4]": "has no room for its trained values",
    "[0, 255, 255, 255, 255, 15, ...name, 0, 0, 0, 0]": "has no room for its trained values",
    "[1, 255, 255, 255, 255, 15, ...name]": "a section of it ends at byte",
    "[1, 128, 128, 128, 128, 128, ...name]": "has more than 32 bits",
    "[0, 13 + 7, ...other, 1, 0, 0, 0, 2, 0, 0]": "nnefc.memory has 7 bytes, not 8",
}


@pytest.mark.parametrize("parts", [7, 100_000])
@pytest.mark.sample(1)
def test_hostile_sections_are_errors(digits: Path, parts: int) -> None:
    found = answer(
        "const { readFileSync } = await import('node:fs'), found = [];"
        "const [name, other] = ['nnefc.constants', 'nnefc.memory'].map((n) => [n.length, ...Buffer.from(n)]);"
        f"for (const section of [{', '.join(HOSTILE)}]) {{"
        f'  const bytes = new Uint8Array([...readFileSync("{digits}"), ...section]), step = {parts};'
        "  const pull = (s) => at < bytes.length ? s.enqueue(bytes.subarray(at, (at += step))) : s.close();"
        "  let at = 0; const sources = [bytes, new Response(new ReadableStream({ pull }))];"
        "  for (const source of sources) await load(source).then(() => found.push('loaded'),"
        "    (e) => found.push(`${e.name}: ${e.message}`)); }"
        "console.log(JSON.stringify(found))"
    )
    assert isinstance(found, list)
    expected = [message for message in HOSTILE.values() for _ in range(2)]
    assert len(found) == len(expected)
    for message, part in zip(found, expected, strict=True):
        assert message.startswith("NnefcError: ") and part in message


@pytest.mark.parametrize(
    ("begin", "tail", "message"),
    [
        ("'<!doctype html>'", "' '", 'it begins with the bytes "3c 21 64 6f 63 74 79 70"'),
        ("'\\0asm\\x0d\\0\\x01\\0'", "'\\0'", 'it begins with the bytes "00 61 73 6d 0d 00 01 00"'),
        ("'\\0asm\\x01\\0\\0\\0'", "'\\x80'", "has more than 32 bits"),
    ],
)
def test_streams_without_an_end_that_are_no_modules_are_ended(begin: str, tail: str, message: str) -> None:
    found = answer(
        f"let count = 0, cancelled = false; const chunks = [{begin}, {tail}.repeat(16384)];"
        "const bytes = chunks.map((text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0)));"
        "const stream = new ReadableStream({"
        "  pull(s) { s.enqueue(bytes[count++ === 0 ? 0 : 1]); }, cancel() { cancelled = true; } });"
        "const message = await load(new Response(stream)).catch((error) => error.message);"
        "console.log(JSON.stringify([message, count < 5, cancelled]))"
    )
    assert isinstance(found, list)
    assert message in found[0]
    assert found[1:] == [True, True]


def test_a_module_without_its_trained_values_refuses_a_session(tmp_path: Path) -> None:
    """Until the program has written them where the section says, which needs no more than docs/ABI.md."""
    weights = np.random.default_rng(1).standard_normal((520, 530)).astype(np.float32)
    network = network_of(program("x[1, 520] -> y\ny = R.matmul(x, w)", w=weights))
    compile_network(network, target("wasm32-wasi")).export(tmp_path / "large.wasm")
    found = answer(
        "const { readFileSync } = await import('node:fs');"
        f'const file = readFileSync("{tmp_path / "large.wasm"}");'
        "const { module, instance } = await WebAssembly.instantiate(file, {}), f = instance.exports; f._initialize?.();"
        "const first = f.nnefc_create(0, f.malloc(4)), message = f.nnefc_last_error(0);"
        "const bytes = new Uint8Array(f.memory.buffer);"
        "const text = new TextDecoder().decode(bytes.slice(message, bytes.indexOf(0, message)));"
        "const [section] = WebAssembly.Module.customSections(module, 'nnefc.constants');"
        "bytes.set(new Uint8Array(section, 4), new DataView(section).getUint32(0, true));"
        "console.log(JSON.stringify([first, text, f.nnefc_create(0, f.malloc(4)), f.nnefc_check()]))"
    )
    assert found == [7, "the trained values are not in memory: nnefc.mjs brings them there", 0, 0]


def test_states_belong_to_a_session_and_go_back_to_their_start(tmp_path: Path) -> None:
    module = program("x[3]; s[3] -> y, y\ny = R.add(x, s)")
    network = Network("sums", module, ("x",), ("y",), (State("s", np.zeros(3, np.float32)),))
    compile_network(network, target("wasm32-wasi")).export(tmp_path / "sums.wasm")
    found = answer(
        f'const one = await load("{tmp_path / "sums.wasm"}"), x = [Float32Array.of(1, 2, 3)];'
        "const sum = (model) => [...model.run(x).y];"
        "const first = [sum(one), sum(one)], two = one.session(), other = sum(two);"
        "one.reset(); two.close(); console.log(JSON.stringify([...first, other, sum(one)]))"
    )
    assert found == [[1, 2, 3], [2, 4, 6], [1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("m.run({})", 'input "image" is missing'),
        ("m.run({image: new Float32Array(63)})", "has 63 elements"),
        ("m.run({image: new Float64Array(64)})", "is a Float64Array, but the model has float32"),
        ("m.run({photo: new Float32Array(64)})", 'has no input "photo", but image'),
        ("m.close(); m.close(); m.run([new Float32Array(64)])", "is closed: load it again"),
        ("await load('none.wasm')", "no such file"),
        ("await load([{source: 'none.wasm', needs: ['simd']}])", 'unknown feature "simd"'),
        ("await load(new Uint8Array([1, 2, 3, 4]))", "no WebAssembly module"),
        ("await load(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))", "is no network of nnefc"),
    ],
)
@pytest.mark.sample(5)
def test_mistakes_are_errors_that_say_what_is_wrong(digits: Path, call: str, message: str) -> None:
    text = f'const m = await load("{digits}"); try {{ {call} }} catch (error) {{ console.log(error.message) }}'
    done = node(text)
    assert done.returncode == 0, done.stderr
    assert message in done.stdout


def test_the_example_prints_the_digit(digits: Path, tmp_path: Path) -> None:
    held_back = np.load(DIGITS / "test.npz")
    (held_back["images"][:1].astype(np.float32) / 16).tofile(tmp_path / "image.f32")
    script = ROOT / "examples" / "node" / "classify.mjs"
    done = subprocess.run(
        ["node", str(script), str(digits), str(tmp_path / "image.f32"), "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    head, name, first, *others = done.stdout.splitlines()
    assert head.startswith("digits, compiled for wasm32-wasi by nnefc")
    assert (name, len(others)) == ("probability:", 2)
    assert int(first.split()[0]) == held_back["labels"][0]


def test_the_example_explains_its_use_and_wrong_files(digits: Path, tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "node" / "classify.mjs")
    assert subprocess.run(["node", script], capture_output=True, check=False).returncode == 2
    (tmp_path / "short").write_bytes(bytes(255))
    done = subprocess.run(
        ["node", script, str(digits), str(tmp_path / "short")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "has 255 bytes" in done.stderr) == (1, True)


@pytest.fixture(scope="module")
def open_network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The products of rows with a vector, their maximum, and the vector's exponentials."""
    text = 'x["n", "h"]; b["h"] -> y, m, e\ny = R.multiply(x, b)\nm = R.max(y, [0])\ne = R.exp(b)'
    path = tmp_path_factory.mktemp("wasm") / "open.wasm"
    compile_network(opened(network_of(program(text))), target("wasm32-wasi")).export(path)
    return path


def test_sizes_go_in_with_arrays_and_come_out(open_network: Path) -> None:
    found = answer(
        f'const m = await load("{open_network}");'
        "m.reserve({ n: 2 });"
        "const out = [[m.inputs[0].shape, m.outputs[0].shape, m.dimensions]];"
        "for (const [n, h] of [[2, 3], [300, 1000], [1, 2]]) {"
        "  const data = Float32Array.from({ length: n * h }, (_, i) => i % 7);"
        "  const r = m.run({ x: { data, shape: [n, h] }, b: new Float32Array(h).fill(2) });"
        "  out.push([r.y0.shape, r.y1.shape, r.y2.shape, r.y0.length, r.y0[n * h - 1], r.y1[0]]);"
        "  if (n < 300) out.push([...m.run([r.y0, new Float32Array(h).fill(3)]).y0]);"
        "}"
        "m.close(); console.log(JSON.stringify(out))"
    )
    dimensions = [{"name": name, "least": 1, "most": 4096, "multiple": 1, "typical": 48} for name in "nh"]
    assert found == [
        [["n", "h"], ["n", "h"], dimensions],
        [[2, 3], [3], [3], 6, 10, 6],
        [0, 6, 12, 18, 24, 30],
        [[300, 1000], [1000], [1000], 300_000, 299_999 % 7 * 2, 12],
        [[1, 2], [2], [2], 2, 2, 0],
        [0, 6],
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("m.run([x, b])", 'input "x" needs a shape, { data, shape }, for n and h are open'),
        ("m.run([{ data: x, shape: [6] }, b])", 'input "x" has the shape [6], but the model has [n,h]'),
        ("m.run([{ data: x, shape: [1, 3] }, b])", 'input "x" has 24 bytes, but 12 by its shape'),
        ("m.run([{ data: x, shape: [3, 2] }, b])", 'dimension 0 of input "b" is 3, but another dimension "h" is 2'),
        ("m.run([{ data: x, shape: [0, 3] }, b])", 'dimension 0 of input "x" is 0, but the network takes 1 to 4096'),
        ("m.reserve({ w: 2 })", 'the model has no dynamic dimension "w", but n, h'),
        ("m.reserve({ n: 0 })", "a size is 0, but the network takes 1 to 4096"),
    ],
)
def test_mistakes_with_sizes_are_errors(open_network: Path, call: str, message: str) -> None:
    setup = f'const m = await load("{open_network}"), x = new Float32Array(6), b = new Float32Array(3);'
    done = node(f"{setup} try {{ {call} }} catch (error) {{ console.log(error.name, error.message) }}")
    assert done.returncode == 0, done.stderr
    assert message in done.stdout
    assert done.stdout.startswith("NnefcError")


def test_a_kernel_is_called_several_times_in_a_run_so_that_engines_can_replace_its_code(tmp_path: Path) -> None:
    exported = ("-Wl,--no-entry", "-Wl,--export=nnefc_pieces_alone")
    command = ["cc", "-target", "wasm32-freestanding", "-O2", "-nostdlib", *exported]
    module = tmp_path / "pieces.wasm"
    subprocess.run(
        [*zig(), *command, f"-I{RUNTIME}", str(RUNTIME / "threads" / "work_chunks.c"), "-o", str(module)], check=True
    )
    found = answer(
        f'const bytes = (await import("node:fs")).readFileSync("{module}");'
        "const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes));"
        "const pieces = (iterations, cycles) => exports.nnefc_pieces_alone(BigInt(iterations), BigInt(cycles));"
        "const loops = [[1, 1e9], [7, 1e6], [128, 32768], [128, 64], [10001, 1], [1000, 0]];"
        "console.log(JSON.stringify(loops.map((loop) => pieces(...loop))))"
    )
    assert found == [1, 7, 16, 1, 1, 16]  # those of 8192 cycles at least, and 16 at most


@pytest.mark.parametrize(
    ("name", "expected"),
    [("wasm32-wasi", ["all there", "runs", "ran"]), ("wasm32-threads", ["runs", "ran", "all there"])],
)
@pytest.mark.sample(1)
def test_kernels_run_once_so_that_engines_compile_them_while_trained_values_arrive_in_shared_memory(
    name: str, expected: list[str], tmp_path: Path
) -> None:
    weights = np.random.default_rng(1).standard_normal((520, 1021)).astype(np.float32)
    network = network_of(program("x[1, 520] -> y\ny = R.matmul(x, w)", w=weights))
    compile_network(network, target(name)).export(tmp_path / "large.wasm")
    found = answer(
        f'const bytes = (await import("node:fs")).readFileSync("{tmp_path / "large.wasm"}"), log = [];'
        "const { instantiate } = WebAssembly; let at = 0;"
        "WebAssembly.instantiate = async (...given) => { const { exports } = await instantiate(...given);"
        "  const nnefc_warm_up = () => { log.push('runs'); exports.nnefc_warm_up(); log.push('ran'); };"
        "  return { exports: { ...exports, nnefc_warm_up } }; };"
        "const pull = async (stream) => { await new Promise((resolve) => setTimeout(resolve, 20));"
        "  const begin = at; at = Math.min(bytes.length, begin + 200000);"
        "  if (at === bytes.length) log.push('all there');"
        "  stream.enqueue(bytes.subarray(begin, at)); };"
        "const stream = new ReadableStream({ pull }, { highWaterMark: 0 });"
        "const model = await load(new Response(stream), { threads: 1 });"
        "const x = Float32Array.from({ length: 520 }, (_, i) => Math.sin(i));"
        "console.log(JSON.stringify([log, [...model.run([x])[model.outputs[0].name]]]))"
    )
    assert isinstance(found, list)
    assert found[0] == expected
    exact = np.sin(np.arange(520), dtype=np.float64) @ weights
    np.testing.assert_allclose(found[1], exact, atol=1e-4)
