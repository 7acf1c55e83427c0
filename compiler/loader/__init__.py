"""Load a compiled network and run it from Python.

This folder needs only NumPy: it can be copied next to a library and imported.

    model = load("resnet50.so")
    probabilities = model(image)                       # one output: an array; several: a tuple
    probabilities = model.run({"data": image})["prob"]  # by name
    model(image, out=buffer)                            # into an existing array
    model.reserve({"batch": 64})                        # allocates memory for batches up to 64, if "batch" is dynamic

Inputs are NumPy arrays, or anything with `__dlpack__`, `__array__` or the buffer protocol. They must have the model's
element type and shape: nothing is converted silently. Dense row-major arrays are read in place; others are copied
first. bfloat16, which NumPy lacks, is passed as uint16 bit patterns or as arrays of ml_dtypes' bfloat16. Inputs of
strings are arrays of `str_`, StringDType or objects (str, or UTF-8 bytes); outputs of strings are arrays of str
objects.

Each session has its own states. They can be read, written and copied, and language models generate tokens with them:

    model.write_state("position", 12)                  # a cache forgets what follows its first 12 elements
    other = model.fork()                               # another session, with a copy of the states
    for token in model.generate(prompt, most=100): ... # temperature, top_k, top_p, seed
    for prompt, token in model.generate_all(prompts, most=100): ... # in parallel, for networks with several sequences
    model.copy_sequence(0, 3)                          # sequence 3 continues from what sequence 0 has read

A network compiled for NVIDIA GPUs also takes arrays in the GPU's memory, with `__dlpack__` or
`__cuda_array_interface__`, and leaves its outputs there on request:

    model = load("resnet50.so", device=1)              # the second GPU; the default is 0, the first
    logits = model(tensor, out="device")               # a DeviceArray, for torch.from_dlpack or CuPy
    logits = model(tensor, stream=stream)              # starts the run on a CUDA stream and returns

Another thread can end a call by `model.cancel()`. After `model.set_time_limit(0.02)`, a call that takes longer than 20
milliseconds raises `RunTimedOut`.

A `Model` may be used from several threads: its calls run one after the other. To run in parallel, give each thread its
own session, `model.session(threads=1)`, which has its own states, workspace and threads and shares the constants; or
let threads share a pool of sessions, `SessionPool(model, sessions=4)`, which also returns futures and splits batches.
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
    _public.__module__ = __name__  # error messages and pickles name the package, from which users import
