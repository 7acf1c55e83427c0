"""What the gallery's scripts share: libraries that are compiled once, and sound in files."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np

import nnefc

__all__ = ["OUT", "compiled", "read_sound", "write_sound"]

OUT = Path("out")


def compiled(model: str | Path, **options: Any) -> nnefc.Model:
    """The network of a model's file; its library stays in the folder `out`, and is compiled when it is not there."""
    library = OUT / f"{Path(model).stem}.so"
    if not library.exists():
        OUT.mkdir(exist_ok=True)
        print(f"compiling {Path(model).name} …", flush=True)
        nnefc.compile(model, **options).export(library)
    return nnefc.load(library)


def read_sound(path: str | Path, rate: int) -> np.ndarray:
    """The first channel of a WAV file of 16 bits, as float32[n] in -1..1, at `rate` samples a second."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise SystemExit(f"{path}: {8 * file.getsampwidth()} bits a sample; 16 are read")
        channels, its_rate = file.getnchannels(), file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")[::channels].astype(np.float32) / 32768
    if its_rate == rate:
        return samples
    positions = np.arange(len(samples) * rate // its_rate) * (its_rate / rate)
    if its_rate > rate:  # what the new rate cannot hold is taken out first
        width = 8 * its_rate // rate
        tap = np.sinc(np.arange(-width, width + 1) * rate / its_rate) * np.hanning(2 * width + 1)
        samples = np.convolve(samples, (tap / tap.sum()).astype(np.float32), "same")
    return np.interp(positions, np.arange(len(samples)), samples).astype(np.float32)


def write_sound(path: str | Path, samples: np.ndarray, rate: int) -> None:
    """Write float32[n] in -1..1 as a WAV file of 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
