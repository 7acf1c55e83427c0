"""Makes a component for ESP-IDF, for Espressif's chips with RISC-V and no unit for floats.

    digits/
        idf_component.yml  CMakeLists.txt
        include/digits.h
        lib/libdigits.a

The format: docs.espressif.com, "Build system" and "IDF Component Manager".
"""

from __future__ import annotations

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.microcontrollers import RISCV, libraries_and_header
from nnefc.driver.packages.networks import Networks
from nnefc.driver.packages.texts import template

__all__ = ["ESP_IDF", "esp_idf_files"]


def esp_idf_files(networks: Networks) -> Files:
    """Returns the files of the folder.

    Raises:
        CompileError: another target than those of such chips, or as :func:`nnefc.compile`.
    """
    networks.chosen({RISCV: (), "esp32c3": ()}, "a component for ESP-IDF")
    libraries, header = libraries_and_header(networks)
    return {
        "idf_component.yml": template("idf_component.yml", networks.values),
        "CMakeLists.txt": template("esp_idf_cmake.txt", networks.values),
        f"include/{networks.name}.h": header,
        f"lib/lib{networks.name}.a": libraries[networks.targets[0]],
    }


ESP_IDF = Kind(
    "esp-idf",
    "A folder with a component for ESP-IDF: ESP32-C2, C3, C6 and H2.",
    r"(?P<name>\w+)",
    "digits",
    Form.FOLDER,
    (RISCV,),
    esp_idf_files,
)
