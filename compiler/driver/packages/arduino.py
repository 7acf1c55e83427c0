"""Makes a library for Arduino, with static libraries where its tools look for those of a board.

    Digits/
        library.properties
        src/digits.h
        src/cortex-m4/libdigits.a                       by the property build.mcu of the board
        src/cortex-m4/fpv4-sp-d16-softfp/libdigits.a    by build.fpu and build.float-abi, where a board has these
        examples/Run/Run.ino

The format: arduino.github.io/arduino-cli, "Library specification", of precompiled libraries.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.microcontrollers import CORES, RISCV, SOFTFP, libraries_and_header
from nnefc.driver.packages.networks import Networks
from nnefc.driver.packages.texts import template

__all__ = ["ARDUINO", "arduino_files"]

_BOARDS: Mapping[str, tuple[str, ...]] = {RISCV: ("esp32c2", "esp32c3", "esp32c6", "esp32h2"), "esp32c3": ("esp32c3",)}
"""The property build.mcu of boards, for targets that it is not called like."""

_UNITS = {"cortex-m4": "fpv4-sp-d16", "cortex-m7": "fpv5-d16", "cortex-m33": "fpv5-sp-d16"}
"""The property build.fpu."""


def arduino_files(networks: Networks) -> Files:
    """Returns the files of the folder.

    Raises:
        CompileError: a target with an operating system, or as :func:`nnefc.compile`.
    """
    soft = {f"{core}/{_UNITS[core]}-softfp": SOFTFP[core] for core in networks.targets if core in SOFTFP}
    libraries, header = libraries_and_header(networks, soft)
    archive = f"lib{networks.name}.a"
    values = {**networks.values, "inputs": _arrays(networks)[0], "call": _arrays(networks)[1]}
    return {
        "library.properties": template("arduino_library.properties", networks.values),
        "examples/Run/Run.ino": template("arduino_run.ino", values),
        f"src/{networks.name}.h": header,
        **{
            f"src/{folder}/{archive}": library
            for name, library in libraries.items()
            for folder in _BOARDS.get(name, (name,))
        },
    }


_TYPES = {"float32": "float", "float64": "double", "bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}


def _arrays(networks: Networks) -> tuple[str, str]:
    """Returns the definitions of arrays for all tensors, and the arguments of a call."""
    described = networks.artifact(networks.targets[0]).description
    lines, names = [], []
    for role, tensors in (("input", described.inputs), ("output", described.outputs)):
        for index, tensor in enumerate(tensors):
            kind = _TYPES.get(tensor.dtype, f"{tensor.dtype}_t")
            macro = f"{networks.name.upper()}_{role.upper()}_{index}_ITEMS"  # words: allowed
            lines.append(f"static {kind} {role}_{index}[{macro}];")
            names.append(f"{role}_{index}")
    return "\n".join(lines), ", ".join(names)


ARDUINO = Kind(
    "arduino",
    "A folder with a library for Arduino, with static libraries for boards by their processors.",
    r"(?P<name>\w+)",
    "Digits",
    Form.FOLDER,
    (*(core for core in CORES if core not in ("cortex-m55", "cortex-m85")), RISCV),
    arduino_files,
)
