"""A language model in a process of its own, run by nnefc or by llama.cpp: it does what each line of stdin asks.

    token_worker.py ENGINE FILE THREADS CONTEXT

A line is a JSON object. {"do": "read", "tokens": [...], "start": N, "file": null} reads tokens after the first N of
what was read before and answers the seconds and the likeliest token; a file gets the logits. {"do": "memory"} answers
how many bytes are resident that were not before the model was there. The first line that is written is the version.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

__all__ = ["ENGINES", "FAST", "LLAMA", "NNEFC", "TokenWorker"]


class _Engine(Protocol):
    """A model that remembers what it has read."""

    version: str

    def read(self, tokens: Sequence[int], start: int) -> np.ndarray:
        """The logits after the last of some tokens, which follow the first `start` ones of what was read."""


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


NNEFC, FAST, LLAMA = "nnefc", "nnefc --fast", "llama.cpp"
ENGINES = {NNEFC: _Nnefc, FAST: _Nnefc, LLAMA: _LlamaCpp}


class TokenWorker:
    """The asking side, a context manager: starts a process, on as many processors as it has threads."""

    def __init__(self, engine: str, file: Path, threads: int, context: int) -> None:
        processors = sorted(os.sched_getaffinity(0))[:threads]
        self._process = subprocess.Popen(
            [sys.executable, __file__, engine, str(file), str(threads), str(context)],
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


def _serve(engine: str, file: Path, threads: int, context: int) -> None:
    __import__("llama_cpp" if engine == LLAMA else "nnefc.loader.model")
    before = _resident()
    model: _Engine = ENGINES[engine](file, threads, context)
    print(json.dumps({"version": model.version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "memory":
            print(json.dumps({"bytes": _resident() - before}), flush=True)
            continue
        start = time.perf_counter()
        logits = model.read(request["tokens"], request["start"])
        seconds = time.perf_counter() - start
        if request["file"]:
            np.save(request["file"], logits)
        print(json.dumps({"seconds": seconds, "token": int(logits.argmax())}), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
