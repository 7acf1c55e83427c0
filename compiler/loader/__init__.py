"""Load a compiled network and run it from Python.

This folder needs NumPy and nothing else: copy it next to the library and import it.

    model = load("resnet50.so")
    probabilities = model(image)                       # one output: an array; several: a tuple
    probabilities = model.run({"data": image})["prob"]  # by name
    model(image, out=buffer)                            # into an existing array
    model.reserve({"batch": 64})                        # memory for all batches up to 64, if sizes are open

Inputs are NumPy arrays, or anything with `__dlpack__`, `__array__` or the buffer protocol. They must have the model's
element type and shape: nothing is converted silently. Dense row-major arrays are read in place; others are copied
first. bfloat16, which NumPy lacks, is passed as uint16 bit patterns or as arrays of ml_dtypes' bfloat16. Strings go in
as arrays of `str_`, StringDType or objects (str, or bytes of UTF-8), and come out as arrays of objects, which are str.

States are a session's own. They can be read, changed and copied, and networks that read tokens write others:

    model.write_state("position", 12)                  # of a cache: what came after 12 elements is forgotten
    other = model.fork()                               # another session that goes on from here
    for token in model.generate(prompt, most=100): ... # temperature, top_k, top_p, seed
    for prompt, token in model.generate_all(prompts, most=100): ... # side by side, if it reads several sequences
    model.copy_sequence(0, 3)                          # sequence 3 goes on from what sequence 0 has read

A network compiled for NVIDIA GPUs also takes arrays in the GPU's memory, with `__dlpack__` or
`__cuda_array_interface__`, and leaves its outputs there on request:

    model = load("resnet50.so", device=1)              # the second GPU; the default is 0, the first
    logits = model(tensor, out="device")               # a DeviceArray, for torch.from_dlpack or CuPy
    logits = model(tensor, stream=stream)              # starts the run on a CUDA stream and returns

A call can be ended by another thread, `model.cancel()`, and by the clock: after `model.set_time_limit(0.02)` each that
takes longer raises `RunTimedOut`.

A `Model` may be used from several threads: its calls take turns. To run in parallel, give each thread its own session,
`model.session(threads=1)`, which has its own states, workspace and threads and shares the constants; or let them share
some, `SessionPool(model, sessions=4)`, which also gives futures and splits batches.
"""

from __future__ import annotations

from .gpu import DeviceArray
from .model import Model, load
from .pool import SessionPool
from .profile import KernelTime, Piece
from .tensors import Dimension, LoadError, RunCancelled, RunError, RunTimedOut, StateMemory, Tensor, listed

__all__ = [
    "DeviceArray",
    "Dimension",
    "KernelTime",
    "LoadError",
    "Model",
    "Piece",
    "RunCancelled",
    "RunError",
    "RunTimedOut",
    "SessionPool",
    "StateMemory",
    "Tensor",
    "listed",
    "load",
]

for _public in (
    DeviceArray,
    Dimension,
    KernelTime,
    LoadError,
    Model,
    Piece,
    RunCancelled,
    RunError,
    RunTimedOut,
    SessionPool,
    StateMemory,
    Tensor,
    listed,
    load,
):
    _public.__module__ = __name__  # where users import it from, which errors and pickles say
