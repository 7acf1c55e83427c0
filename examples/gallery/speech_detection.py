"""When somebody speaks in a recording: Silero's detector, which remembers what it has heard in a state.

python speech_detection.py speech.wav
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from compiled import compiled, read_sound

RATE = 16000
FRAME = 512  # samples, of which each run has 64 more from before


def speech(sound: np.ndarray) -> Iterator[float]:
    """For each frame of 32 milliseconds, how likely it is speech."""
    package = find_spec("silero_vad")  # not imported: the package would import torch
    assert package is not None and package.origin is not None
    model = Path(package.origin).parent / "data" / "silero_vad.onnx"
    detector = compiled(model, shape={"input": (1, FRAME + 64), "state": (2, 1, 128)}, values={"sr": RATE})
    state = np.zeros((2, 1, 128), np.float32)
    sound = np.pad(sound, (64, -len(sound) % FRAME))
    for start in range(0, len(sound) - 64, FRAME):
        likely, state = detector(sound[None, start : start + FRAME + 64], state)
        yield likely.item()


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "speech.wav"
    begin = None
    for number, likely in enumerate([*speech(read_sound(path, RATE)), 0.0]):
        seconds = number * FRAME / RATE
        if begin is None and likely > 0.5:
            begin = seconds
        elif begin is not None and likely < 0.35:
            print(f"speech from {begin:.2f} s to {seconds:.2f} s")
            begin = None
