"""Networks of the benchmarks in integers of 8 bits: models of ONNX that nnefc's quantizer and onnxruntime's wrote.

    python benchmarks/integer_models.py NETWORK ...

writes both next to the networks, unless they are there already, made by the same commit. Both quantizers see the same
random inputs and have the same settings: ranges by the smallest and the largest value, a scale for each output channel
of the weights. On x86 without VNNI, onnxruntime's weights have 7 bits, as it advises: its sums would saturate.
`--reduced` writes those of 7 bits on any processor.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from conditions import commit
from models.networks import NAMES, input_of, write_twins
from onnx import version_converter

import nnefc
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["LEFT_OUT", "NETWORKS", "IntegerModels", "onnxruntime_quantizes", "prepared", "random_values"]

_REDUCED = "--reduced"

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
LEFT_OUT = {
    "lstm": "the products of its steps are within one operator, whose operands a model cannot round",
    "gru": "as lstm",
}
"""Networks without a form in integers, and why."""
NETWORKS = tuple(name for name in NAMES if name not in LEFT_OUT)

_RUNS = 4  # to quantize by
_OPSET = 13  # the first that has scales for channels


@dataclass(frozen=True)
class IntegerModels:
    """The files of a network.

    Attributes:
        wide: in float32.
        own, theirs: in integers, by nnefc and by onnxruntime.
        both: the names of these, as `INT8_PEERS` read them.
        inputs: values to run it on, an .npz file.
        reduced: whether onnxruntime's weights have 7 bits.
    """

    wide: Path
    own: Path
    theirs: Path
    both: Path
    inputs: Path
    reduced: bool

    @staticmethod
    def of(network: str, reduced: bool | None = None) -> IntegerModels:
        """Where they are; the network in float32 and its inputs are written.

        Args:
            reduced: as the attribute; None for what suits this processor.
        """
        wide = write_twins(MODELS, network).onnx
        reduced = _saturates() if reduced is None else reduced
        theirs = "7" if reduced else "8"
        endings = (".int8.nnefc.onnx", f".int{theirs}.ort.onnx", f".int{theirs}.json", ".npz")
        models = IntegerModels(wide, *map(wide.with_suffix, endings), reduced)
        np.savez(models.inputs, **input_of(onnx.load(wide, load_external_data=False)))
        models.both.write_text(json.dumps([models.own.name, models.theirs.name]))
        return models

    def write(self) -> None:
        """Quantize it, unless this commit has done so."""
        with np.load(self.inputs) as values:
            known = [dict(values), *(random_values(values, seed) for seed in range(_RUNS))]
        if not _is_current(self.own):
            together = {name: np.stack([v[name] for v in known]) for name in known[0]}
            nnefc.quantize(self.wide, self.own, calibrate=together)
            _stamp(self.own).write_text(commit())
        if not _is_current(self.theirs):
            onnxruntime_quantizes(self.wide, self.theirs, known, self.reduced)
            _stamp(self.theirs).write_text(commit())


def _stamp(model: Path) -> Path:
    return model.with_suffix(".commit")


def _is_current(model: Path) -> bool:
    """Whether this commit has written a model. If not, what it may hold counts as nothing until it is written."""
    stamp, now = _stamp(model), commit()
    if stamp.exists() and stamp.read_text() == now and len(now) == 12:
        return True
    stamp.unlink(missing_ok=True)
    return False


def prepared(network: str, reduced: bool | None = None) -> IntegerModels:
    """All files of a network, written by a process of its own, whose memory is free then.

    Args:
        reduced: as :meth:`IntegerModels.of` has it.
    """
    models = IntegerModels.of(network, reduced)
    words = [network, *[_REDUCED] * models.reduced]
    subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.DEVNULL)
    return models


def random_values(values: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Other values of floats, the same of what is none."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(value.shape).astype(value.dtype) if value.dtype.kind == "f" else value
        for name, value in values.items()
    }


def onnxruntime_quantizes(
    source: Path, result: Path, inputs: Sequence[Mapping[str, np.ndarray]], reduced: bool | None = None
) -> None:
    """Write a model with `QuantizeLinear` and `DequantizeLinear` around all that onnxruntime computes in integers.

    Args:
        reduced: whether weights have 7 bits; None for what suits this processor.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    simple = result.with_suffix(".simple.onnx")
    quant_pre_process(str(source), str(simple), skip_symbolic_shape=True)
    model = onnx.load(simple)
    if model.opset_import[0].version < _OPSET:
        onnx.save(version_converter.convert_version(model, _OPSET), simple)
    logging.disable(logging.WARNING)
    quantize_static(
        str(simple),
        str(result),
        _reader(inputs),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=_saturates() if reduced is None else reduced,
    )
    logging.disable(logging.NOTSET)
    simple.unlink()


def _saturates() -> bool:
    """Whether onnxruntime adds up products of bytes in 16 bits here, for which its weights need one bit less."""
    target = parse_target("llvm")
    return target.triple.startswith("x86_64") and not {"avx512vnni", "avxvnni"} & set(target.features)


def _reader(inputs: Sequence[Mapping[str, np.ndarray]]) -> object:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[Mapping[str, np.ndarray]] = iter(inputs)

        def get_next(self) -> Mapping[str, np.ndarray] | None:
            return next(self._left, None)

    return Reader()


if __name__ == "__main__":
    for name in [word for word in sys.argv[1:] if word != _REDUCED]:
        IntegerModels.of(name, reduced=True if _REDUCED in sys.argv else None).write()
