"""Makes a module for Zephyr, with a static library for each processor that it may be built for.

    digits/
        zephyr/module.yml  CMakeLists.txt
        include/digits.h
        lib/cortex-m4/libdigits.a

An application is built with it by `west build -- -DEXTRA_ZEPHYR_MODULES=/path/to/digits`. The format:
docs.zephyrproject.org, "Modules (External projects)".
"""

from __future__ import annotations

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.microcontrollers import CORES, RISCV, libraries_and_header
from nnefc.driver.packages.networks import Networks
from nnefc.driver.packages.texts import template

__all__ = ["ZEPHYR", "zephyr_files"]

_CONDITIONS = {
    **{core: f"CONFIG_CPU_{core.upper().replace('-', '_')}" for core in CORES},
    **dict.fromkeys((RISCV, "esp32c3"), "CONFIG_RISCV AND NOT CONFIG_64BIT"),
}
_WITHOUT_FLOATS = ("cortex-m0plus", "cortex-m3", RISCV, "esp32c3")


def zephyr_files(networks: Networks) -> Files:
    """Returns the files of the folder.

    Raises:
        CompileError: another target than those of the table, or as :func:`nnefc.compile`.
    """
    networks.chosen(_CONDITIONS, "a module for Zephyr")
    libraries, header = libraries_and_header(networks)
    lines = []
    for index, target in enumerate(networks.targets):
        lines += [f"{'else' * bool(index)}if({_CONDITIONS[target]})", f"  set({networks.name}_processor {target})"]
    floats = " OR ".join(_CONDITIONS[target] for target in networks.targets if target not in _WITHOUT_FLOATS)
    values = {**networks.values, "choice": "\n".join(lines), "floats": floats or "FALSE"}
    return {
        "zephyr/module.yml": template("zephyr_module.yml", networks.values),
        "CMakeLists.txt": template("zephyr_cmake.txt", values),
        f"include/{networks.name}.h": header,
        **{f"lib/{target}/lib{networks.name}.a": library for target, library in libraries.items()},
    }


ZEPHYR = Kind(
    "zephyr",
    "A folder with a module for Zephyr, with static libraries for its processors.",
    r"(?P<name>\w+)",
    "digits",
    Form.FOLDER,
    (*CORES, RISCV),
    zephyr_files,
)
