"""The software that nnefc runs with: what it requires, in the versions that are installed here, for CycloneDX.

The wheel has it in its `.dist-info/sboms`, where PEP 770 has tools look for it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

__all__ = ["bill_of_materials"]


def bill_of_materials(name: str, extras: tuple[str, ...]) -> str:
    """The document of an installed package with these extras, as JSON: the same packages give the same text.

    Raises:
        PackageNotFoundError: the package itself is not installed. Of others, those that are not are left out.
    """
    found: dict[str, tuple[Component, set[str]]] = {}
    _add(distribution(name), frozenset(extras), found, set())
    known = {key: component for key, (component, _) in found.items()}
    bom = Bom(components=[component for key, component in known.items() if key != _key(name)])
    bom.metadata.component = known[_key(name)]
    for key, (component, required) in found.items():
        bom.register_dependency(component, [known[each] for each in sorted(required) if each in known and each != key])
    text = "\n".join(f"{component.purl}" for component in sorted(known.values(), key=lambda each: str(each.purl)))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, text)
    bom.metadata.timestamp = None  # type: ignore[assignment]  # the same on every day
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _add(
    package: Distribution,
    extras: frozenset[str],
    found: dict[str, tuple[Component, set[str]]],
    seen: set[tuple[str, frozenset[str]]],
) -> None:
    name, version = package.metadata["Name"], package.version
    key = _key(name)
    if (key, extras) in seen:
        return
    seen.add((key, extras))
    if key not in found:
        found[key] = _component(package, name, version), set()
    for requirement in _required(package, extras):
        try:
            other = distribution(requirement.name)
        except PackageNotFoundError:
            continue
        found[key][1].add(_key(other.metadata["Name"]))
        _add(other, frozenset(requirement.extras), found, seen)


def _component(package: Distribution, name: str, version: str) -> Component:
    license_text = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", name=_key(name), version=version),
        bom_ref=f"{_key(name)}=={version}",
        licenses=[DisjunctiveLicense(name=license_text)] if license_text and "\n" not in license_text else None,
    )


def _required(package: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in package.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
