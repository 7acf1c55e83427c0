"""Users of a language model in llama.cpp: each has a slot, and all slots advance in one batch, as its server does.

    llama_slots.py

reads one JSON object from stdin: {"file", "threads", "context", "users": [[tokens of a prompt, …], …], "maximum"}, the
prompts of each user in turn. Writes one: {"version", "replies": [{"first", "gap", "seconds", "tokens"}, …], "seconds"}.
Prompts are read together with the next tokens of other slots; a slot keeps what it has read, and a prompt goes on from
what it has in common with that. The likeliest token is chosen. There is no HTTP, and there are no texts.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import llama_cpp
import numpy as np

BATCH = 512
"""Tokens of a batch."""


@dataclass
class Slot:
    """A user's sequence.

    Attributes:
        prompts: those that are still to be answered.
        held: tokens that the cache has.
        left: tokens that it gets next: of a prompt, or the last one of the reply.
        written: tokens of the reply.
        begun, last: when the request began, and when the last token came.
    """

    number: int
    prompts: list[list[int]]
    held: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    written: int = 0
    begun: float = 0.0
    last: float = 0.0
    first: float = 0.0
    gap: float = 0.0


class Batches:
    """A model, and one batch that is filled again and again."""

    def __init__(self, file: str, threads: int, context: int, users: int) -> None:
        self._quiet = llama_cpp.llama_log_callback(lambda *_: None)  # as long as messages may come
        llama_cpp.llama_log_set(self._quiet, None)
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(file), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch, options.n_seq_max = context * users, BATCH, BATCH, users
        options.n_threads = options.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._words = llama_cpp.llama_vocab_n_tokens(self._vocabulary)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def forget(self, slot: int, count: int) -> None:
        """Lets a slot keep its first tokens alone."""
        llama_cpp.llama_memory_seq_rm(self._memory, slot, count, -1)

    def ends(self, token: int) -> bool:
        """Whether a token ends a reply."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocabulary, token))

    def run(self, parts: list[tuple[int, int, list[int], bool]]) -> dict[int, int]:
        """Reads parts, each a slot, its first position, tokens and whether a token is to follow; returns those."""
        batch, wanted, count = self._batch, {}, 0
        for slot, start, tokens, is_last in parts:
            for offset, token in enumerate(tokens):
                batch.token[count], batch.pos[count] = token, start + offset
                batch.n_seq_id[count], batch.seq_id[count][0] = 1, slot
                batch.logits[count] = is_last and offset == len(tokens) - 1
                if batch.logits[count]:
                    wanted[slot] = count
                count += 1
        batch.n_tokens = count
        if status := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode answers {status}")
        return {slot: self._likeliest(index) for slot, index in wanted.items()}

    def _likeliest(self, index: int) -> int:
        found = llama_cpp.llama_get_logits_ith(self._context, index)
        pointer = ctypes.cast(found, ctypes.POINTER(ctypes.c_float))
        return int(np.ctypeslib.as_array(pointer, (self._words,)).argmax())


def begin(slot: Slot, batches: Batches) -> None:
    """Takes the next prompt of a user."""
    prompt = slot.prompts.pop(0)
    pairs = zip(slot.held, prompt[:-1], strict=False)
    known = next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(slot.held), len(prompt) - 1))
    batches.forget(slot.number, known)
    slot.held, slot.left, slot.written = prompt[:known], prompt[known:], 0
    slot.begun, slot.gap = time.perf_counter(), 0.0


def serve(given: dict[str, Any]) -> dict[str, Any]:
    """Answers all prompts of all users."""
    slots = [Slot(number, list(prompts)) for number, prompts in enumerate(given["users"])]
    batches = Batches(given["file"], given["threads"], given["context"], len(slots))
    replies = []
    start = time.perf_counter()
    for slot in slots:
        begin(slot, batches)
    while active := [slot for slot in slots if slot.left]:
        parts, room = [], BATCH
        for slot in sorted(active, key=lambda each: len(each.left)):  # single tokens first
            taken, slot.left = slot.left[:room], slot.left[room:]
            if taken:
                parts.append((slot.number, len(slot.held), taken, not slot.left))
                slot.held += taken
                room -= len(taken)
        for number, token in batches.run(parts).items():
            slot, now = slots[number], time.perf_counter()
            if slot.written == 0:
                slot.first = now - slot.begun
            else:
                slot.gap = max(slot.gap, now - slot.last)
            slot.last = now
            is_over = batches.ends(token)
            slot.written += not is_over
            if not is_over and slot.written < given["maximum"]:
                slot.left = [token]
                continue
            reply = {"first": slot.first, "gap": slot.gap, "seconds": now - slot.begun, "tokens": slot.written}
            replies.append(reply)
            if slot.prompts:
                begin(slot, batches)
    seconds = time.perf_counter() - start
    return {"version": f"llama-cpp-python {llama_cpp.__version__}", "replies": replies, "seconds": seconds}


if __name__ == "__main__":
    json.dump(serve(json.load(sys.stdin)), sys.stdout)
