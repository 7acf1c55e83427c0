"""Makes a component for ESP-IDF: a static library for Espressif's chips with RISC-V, C source for the others.

    digits/
        idf_component.yml  CMakeLists.txt
        include/digits.h
        lib/libdigits.a     ESP32-C2, C3, C5, C6, C61 and H2
        source/digits.c     ESP32, S2 and S3 with Xtensa, P4 with a unit for floats
        source/digits.h

The format: docs.espressif.com, "Build system" and "IDF Component Manager".
"""

from __future__ import annotations

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.microcontrollers import RISCV, libraries_and_header
from nnefc.driver.packages.networks import Networks
from nnefc.driver.packages.texts import template
from nnefc.support.diagnostics import CompileError

__all__ = ["ESP_IDF", "esp_idf_files"]

_SOURCE = "generic-c"
_LIBRARIES = (RISCV, "esp32c3")
_WITH_LIBRARY = ("esp32c2", "esp32c3", "esp32c5", "esp32c6", "esp32c61", "esp32h2")
_WITH_SOURCE = ("esp32", "esp32s2", "esp32s3", "esp32p4")


def esp_idf_files(networks: Networks) -> Files:
    """Returns the files of the folder.

    Raises:
        CompileError: another target than those of such chips, or as :func:`nnefc.compile`.
    """
    networks.chosen(dict.fromkeys((*_LIBRARIES, _SOURCE), ()), "a component for ESP-IDF")
    compiled = tuple(target for target in networks.targets if target != _SOURCE)
    if len(compiled) > 1:
        raise CompileError(
            "a component for ESP-IDF has one static library", hint=f"give one of {', '.join(_LIBRARIES)}"
        )
    files: dict[str, bytes] = {}
    chips: list[str] = []
    if compiled:
        libraries, header = libraries_and_header(networks, chosen=compiled)
        files |= {f"include/{networks.name}.h": header, f"lib/lib{networks.name}.a": libraries[compiled[0]]}
        chips += _WITH_LIBRARY
    if _SOURCE in networks.targets:
        made = networks.exported(_SOURCE, f"{networks.name}.c", named=True)
        files |= {f"source/{name}": file for name, file in made.items()}
        chips += _WITH_SOURCE if compiled else (*_WITH_SOURCE, *_WITH_LIBRARY)
    values = {
        **networks.values,
        "chips": "\n".join(f"  - {chip}" for chip in chips),
        "compiled": "|".join(_WITH_LIBRARY) if compiled else "",
    }
    return {
        "idf_component.yml": template("idf_component.yml", values),
        "CMakeLists.txt": template("esp_idf_cmake.txt", values),
        **files,
    }


ESP_IDF = Kind(
    "esp-idf",
    "A folder with a component for ESP-IDF: a library for ESP32-C and H, C source for ESP32, S2 and S3.",
    r"(?P<name>\w+)",
    "digits",
    Form.FOLDER,
    (RISCV, _SOURCE),
    esp_idf_files,
)
