"""Makes a CMSIS-Pack, which Keil, IAR and other tools for Arm's microcontrollers install.

    nnefc.digits.1.0.0.pack
        nnefc.digits.pdsc               what is in it, and for which processors
        include/digits.h
        lib/cortex-m4/libdigits.a

The format: open-cmsis-pack.github.io, "Open-CMSIS-Pack specification", version 1.7.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.microcontrollers import CORES, libraries_and_header
from nnefc.driver.packages.networks import Networks

__all__ = ["CMSIS_PACK", "VENDOR", "cmsis_pack_files"]

VENDOR = "nnefc"

_SCHEMA = "https://raw.githubusercontent.com/Open-CMSIS-Pack/Open-CMSIS-Pack-Spec/v1.7.7/schema/PACK.xsd"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

_ANY_FPU = ({"Dfpu": "SP_FPU"}, {"Dfpu": "DP_FPU"})

_CONDITIONS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "cortex-m0plus": ({"Dcore": "Cortex-M0+"},),
    "cortex-m3": ({"Dcore": "Cortex-M3"},),
    "cortex-m4": ({"Dcore": "Cortex-M4", "Dfpu": "SP_FPU"},),
    "cortex-m7": tuple({"Dcore": "Cortex-M7", **unit} for unit in _ANY_FPU),
    "cortex-m33": ({"Dcore": "Cortex-M33", "Dfpu": "SP_FPU"},),
    "cortex-m55": tuple({"Dcore": "Cortex-M55", **unit, "Dmve": "FP_MVE"} for unit in _ANY_FPU),
    "cortex-m85": tuple({"Dcore": "Cortex-M85", **unit, "Dmve": "FP_MVE"} for unit in _ANY_FPU),
}
"""Processors that a library is for, in the words of the format: it is taken for each of them."""


def cmsis_pack_files(networks: Networks) -> Files:
    """Returns the files of the archive.

    Raises:
        CompileError: another target than Arm's microcontrollers, or as :func:`nnefc.compile`.
    """
    networks.chosen(_CONDITIONS, "a CMSIS-Pack")
    libraries, header = libraries_and_header(networks)
    return {
        f"{VENDOR}.{networks.name}.pdsc": _description(networks),
        f"include/{networks.name}.h": header,
        **{f"lib/{target}/lib{networks.name}.a": library for target, library in libraries.items()},
    }


def _description(networks: Networks) -> bytes:
    """Returns the description of the package, whose elements are in the order of the schema."""
    root = ET.Element(
        "package",
        {"schemaVersion": "1.7.7", "xmlns:xs": _INSTANCE, "xs:noNamespaceSchemaLocation": _SCHEMA},
    )
    about = f"The neural network {networks.name}, compiled by nnefc"
    for tag, text in (("vendor", VENDOR), ("name", networks.name), ("description", about), ("url", "")):
        ET.SubElement(root, tag).text = text
    release = ET.SubElement(ET.SubElement(root, "releases"), "release", version=networks.version)
    release.text = "Compiled."
    conditions = ET.SubElement(root, "conditions")
    for target in networks.targets:
        condition = ET.SubElement(conditions, "condition", id=target)
        for processor in _CONDITIONS[target]:
            ET.SubElement(condition, "accept", dict(processor))
    components = ET.SubElement(root, "components")
    component = ET.SubElement(
        components, "component", Cclass="Machine Learning", Cgroup=networks.name, Cversion=networks.version
    )
    ET.SubElement(component, "description").text = about
    files = ET.SubElement(component, "files")
    ET.SubElement(files, "file", category="include", name="include/")
    ET.SubElement(files, "file", category="header", name=f"include/{networks.name}.h")
    for target in networks.targets:
        library = f"lib/{target}/lib{networks.name}.a"
        ET.SubElement(files, "file", category="library", name=library, condition=target)
    ET.indent(root)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root) + b"\n"


CMSIS_PACK = Kind(
    "cmsis-pack",
    "A CMSIS-Pack for Keil, IAR and others, with static libraries for Arm's microcontrollers.",
    rf"{VENDOR}\.(?P<name>\w+)\.(?P<version>\d+\.\d+\.\d+)\.pack",
    f"{VENDOR}.digits.1.0.0.pack",
    Form.ZIP,
    CORES,
    cmsis_pack_files,
)
