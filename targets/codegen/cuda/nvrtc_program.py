"""Compiles CUDA source with NVRTC as a program: in its own process, at addresses that do not vary.

    python nvrtc_program.py LIBRARY CUBIN --gpu-architecture=sm_80 …  < source  > machine code

What NVRTC writes depends now and then on the addresses that it is given. Linux gives a process the same ones each time
if it asks for that; where a container forbids to ask, they stay random, and so, seldom, does the order of instructions.

The log goes to stderr. The status is 0 for success, 1 for errors in the source, 2 for others. It needs nothing else.
"""

from __future__ import annotations

import ctypes
import os
import sys

_SAME_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of <sys/personality.h>
_PRESENT = 0xFFFFFFFF


def _with_same_addresses() -> None:
    """Starts this program once more, with addresses that do not vary, if that is possible and not the case already."""
    try:
        personality = ctypes.CDLL(None).personality
    except (OSError, AttributeError, TypeError):  # not Linux
        return
    present = personality(ctypes.c_ulong(_PRESENT))
    if present != -1 and not present & _SAME_ADDRESSES:
        personality(ctypes.c_ulong(present | _SAME_ADDRESSES))
        if personality(ctypes.c_ulong(_PRESENT)) & _SAME_ADDRESSES:
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class _Failure(Exception):
    pass


def _compiled(library: ctypes.CDLL, kind: str, options: list[str], source: bytes) -> tuple[int, bytes, bytes]:
    """NVRTC's status, what it made, and its log."""
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    program = ctypes.c_void_p()

    def check(status: int) -> None:
        if status != 0:
            raise _Failure(library.nvrtcGetErrorString(status).decode())

    def content(name: str) -> bytes:
        size = ctypes.c_size_t()
        check(library[f"nvrtcGet{name}Size"](program, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        check(library[f"nvrtcGet{name}"](program, text))
        return text.raw

    check(library.nvrtcCreateProgram(ctypes.byref(program), source, b"network.cu", 0, None, None))
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status: int = library.nvrtcCompileProgram(program, len(options), given)
    return status, content(kind) if status == 0 else b"", content("ProgramLog").rstrip(b"\0")


def _main() -> int:
    _with_same_addresses()
    path, kind, *options = sys.argv[1:]
    try:
        status, made, log = _compiled(ctypes.CDLL(path), kind, options, sys.stdin.buffer.read())
    except (OSError, _Failure) as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.buffer.write(made)
    sys.stderr.buffer.write(log)
    return 0 if status == 0 else 1


if __name__ == "__main__":
    sys.exit(_main())
