"""A language model in a process of its own, run by nnefc or by another engine: it does what each line of stdin asks.

    token_worker.py ENGINE FILE THREADS CONTEXT

A line is a JSON object. {"do": "read", "tokens": [...], "start": N, "file": null} reads tokens after the first N of
what was read before and answers the seconds and the likeliest token; a file gets the logits. {"do": "write", "tokens":
[...], "known": N, "count": M} reads a prompt, of which the first N tokens were read before, and answers the M likeliest
tokens that follow and the seconds that each took. {"do": "memory"} answers how many bytes are resident that were not
before the model was there. The first line that is written is the version.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

__all__ = ["FAST", "GENAI", "LLAMA", "NNEFC", "OPENVINO", "TokenWorker", "Written", "likeliest"]

_AT_ONCE = 512  # tokens of a prompt


class _Engine(Protocol):
    """A model that remembers what it has read."""

    version: str

    def read(self, tokens: Sequence[int], start: int) -> np.ndarray:
        """The logits after the last of some tokens, which follow the first `start` ones of what was read."""


@dataclass(frozen=True)
class Written:
    """The likeliest tokens after a prompt, and the seconds that each took; the prompt is part of the first one's."""

    tokens: Sequence[int]
    seconds: Sequence[float]


class _Nnefc:
    def __init__(self, file: Path, threads: int, _context: int) -> None:
        import nnefc

        self.version = f"nnefc {version('nnefc')}"
        self._model = nnefc.load(file, threads=threads)
        self._read = 0

    def read(self, tokens: Sequence[int], start: int) -> np.ndarray:
        if start != self._read:
            self._model.write_state("P", start)
        self._read = start + len(tokens)
        return np.asarray(self._model(np.array([tokens], np.int64)))[0]


class _LlamaCpp:
    """The functions in C that its Python package declares."""

    def __init__(self, file: Path, threads: int, context: int) -> None:
        import llama_cpp

        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        self._c = llama_cpp
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)  # as long as messages may come
        llama_cpp.llama_log_set(self._quiet, None)
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(file), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = context
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def read(self, tokens: Sequence[int], start: int) -> np.ndarray:
        self._c.llama_memory_seq_rm(self._memory, 0, start, -1)
        batch = self._c.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for position, token in enumerate(tokens):
            batch.token[position], batch.pos[position] = token, start + position
            batch.n_seq_id[position], batch.seq_id[position][0] = 1, 0
            batch.logits[position] = position == len(tokens) - 1
        status = self._c.llama_decode(self._context, batch)
        self._c.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode answers {status}")
        found = self._c.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(ctypes.cast(found, ctypes.POINTER(ctypes.c_float)), (self._words,))


class _OnnxruntimeGenai:
    """A folder with `genai_config.json`."""

    def __init__(self, file: Path, threads: int, context: int) -> None:
        import onnxruntime_genai

        self.version = f"onnxruntime-genai {version('onnxruntime-genai')}"
        config = onnxruntime_genai.Config(str(file))
        session = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = onnxruntime_genai.Model(config)
        options = onnxruntime_genai.GeneratorParams(self._model)
        options.set_search_options(max_length=context, do_sample=False)
        self._generator = onnxruntime_genai.Generator(self._model, options)
        self._read = 0

    def read(self, tokens: Sequence[int], start: int) -> np.ndarray:
        if start != self._read:
            self._generator.rewind_to(start)
        self._read = start + len(tokens)
        self._generator.append_tokens(np.array([tokens], np.int32))
        return np.asarray(self._generator.get_logits()).reshape(-1)


class _OpenVinoGenai:
    """A file of GGUF in a folder, where the converted model is kept; with a tokenizer there if the file has none.

    All is as the package has it by default; the version says which settings of it change results.
    """

    def __init__(self, file: Path, threads: int, _context: int) -> None:
        import openvino
        import openvino_genai

        self._openvino, self._genai = openvino, openvino_genai
        self._kept = file.with_name("openvino_model.xml")
        self._options = {"INFERENCE_NUM_THREADS": threads}
        kept = file.with_name("openvino_tokenizer.xml").exists()
        tokenizer = [openvino_genai.Tokenizer(file.parent)] if kept else []
        source, save = (file.parent, {}) if self._kept.exists() else (file, {"enable_save_ov_model": True})
        self._pipeline = openvino_genai.LLMPipeline(source, *tokenizer, "CPU", **self._options, **save)
        core = openvino.Core()
        settings = ("INFERENCE_PRECISION_HINT", "DYNAMIC_QUANTIZATION_GROUP_SIZE", "KV_CACHE_PRECISION")
        found = ", ".join(f"{name} {_named(core.get_property('CPU', name))}" for name in settings)
        self.version = f"openvino-genai {version('openvino-genai')} ({found})"

    def read(self, tokens: Sequence[int], start: int) -> np.ndarray:
        """By OpenVINO itself, which runs the model that the package has converted: only logits, of whole prompts."""
        if start:
            raise ValueError("tokens are read from the first one on")
        model = self._openvino.Core().compile_model(self._kept, "CPU", self._options)
        given = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, len(tokens)), np.int64),
            "position_ids": np.arange(len(tokens), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        return np.array(model(given)["logits"][0, -1])

    def write(self, tokens: Sequence[int], count: int) -> Written:
        """The package keeps what prompts have in common with earlier ones."""
        config = self._genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
        found = self._pipeline.generate(self._openvino.Tensor(np.array([tokens], np.int64)), config)
        times = found.perf_metrics.raw_metrics
        microseconds = *times.m_times_to_first_token, *times.m_durations
        return Written(found.tokens[0], [1e-6 * each for each in microseconds][:count])


def _named(value: object) -> str:
    """A property of OpenVINO, without the marks of its representation."""
    return str(value).removeprefix("<Type: ").strip("'>")


NNEFC, FAST, LLAMA = "nnefc", "nnefc --fast", "llama.cpp"
OPENVINO, GENAI = "OpenVINO GenAI", "onnxruntime-genai"
_ENGINES: Mapping[str, tuple[type, str]] = {
    NNEFC: (_Nnefc, "nnefc.loader.model"),
    FAST: (_Nnefc, "nnefc.loader.model"),
    LLAMA: (_LlamaCpp, "llama_cpp"),
    OPENVINO: (_OpenVinoGenai, "openvino_genai"),
    GENAI: (_OnnxruntimeGenai, "onnxruntime_genai"),
}
"""Engines, and the modules that are there before memory is measured."""


class TokenWorker:
    """The asking side, a context manager: starts a process, on as many processors as it has threads."""

    def __init__(self, engine: str, file: Path, threads: int, context: int, python: str = sys.executable) -> None:
        processors = sorted(os.sched_getaffinity(0))[:threads]
        self._process = subprocess.Popen(
            [python, __file__, engine, str(file), str(threads), str(context)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, processors),
        )
        self.version = str(self._answer()["version"])

    def read(self, tokens: Sequence[int], start: int = 0, file: Path | None = None) -> tuple[float, int]:
        """Read tokens after the first `start` ones of what was read; seconds, and the likeliest token that follows."""
        found = self._ask(do="read", tokens=list(tokens), start=start, file=None if file is None else str(file))
        return float(found["seconds"]), int(found["token"])

    def write(self, tokens: Sequence[int], count: int, known: int = 0) -> Written:
        """The likeliest tokens after a prompt, of which the first `known` tokens were read before."""
        return Written(**self._ask(do="write", tokens=list(tokens), count=count, known=known))

    def memory(self) -> int:
        """The resident bytes that the model has taken since the process began."""
        return int(self._ask(do="memory")["bytes"])

    def _ask(self, **what: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process has ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> TokenWorker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def likeliest(model: _Engine, tokens: Sequence[int], count: int, known: int) -> Written:
    """The tokens that an engine writes after a prompt: by its own loop, if it has one, or token by token."""
    if isinstance(model, _OpenVinoGenai):
        return model.write(tokens, count)
    chosen: list[int] = []
    seconds: list[float] = []
    for read in range(len(tokens), len(tokens) + count):
        begun = time.perf_counter()
        new: Sequence[int] = chosen[-1:] or tokens[known:]
        for start in range(read - len(new), read, _AT_ONCE):
            logits = model.read(new[:_AT_ONCE], start)
            new = new[_AT_ONCE:]
        chosen.append(int(logits.argmax()))
        seconds.append(time.perf_counter() - begun)
    return Written(chosen, seconds)


def _serve(engine: str, file: Path, threads: int, context: int) -> None:
    kind, module = _ENGINES[engine]
    __import__(module)
    before = _resident()
    model: _Engine = kind(file, threads, context)
    print(json.dumps({"version": model.version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "memory":
            print(json.dumps({"bytes": _resident() - before}), flush=True)
            continue
        if request["do"] == "write":
            found = likeliest(model, request["tokens"], request["count"], request["known"])
            print(json.dumps(asdict(found)), flush=True)
            continue
        start = time.perf_counter()
        logits = model.read(request["tokens"], request["start"])
        seconds = time.perf_counter() - start
        if request["file"]:
            np.save(request["file"], logits)
        print(json.dumps({"seconds": seconds, "token": int(logits.argmax())}), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
