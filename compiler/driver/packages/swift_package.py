"""Makes a Swift package: an XCFramework, and a class of Swift that runs its network."""

from __future__ import annotations

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.networks import Networks
from nnefc.driver.packages.texts import template
from nnefc.driver.packages.xcframework import XCFRAMEWORK, xcframework_files

__all__ = ["SWIFT_PACKAGE", "swift_package_files"]


def swift_package_files(networks: Networks) -> Files:
    """Returns the files of the folder. The module of Swift is called `DigitsNetwork`, that of C `digits`.

    Raises:
        CompileError: as :func:`xcframework_files`.
    """
    framework = f"{networks.name}.xcframework"
    return {
        "Package.swift": template("package.swift", networks.values),
        f"Sources/{networks.title}Network/Network.swift": template("network.swift", networks.values),
        **{f"{framework}/{name}": file for name, file in xcframework_files(networks).items()},
    }


SWIFT_PACKAGE = Kind(
    "swift-package",
    "A folder with a Swift package: an XCFramework, and a class of Swift that runs the network.",
    r"(?P<name>\w+)",
    "digits",
    Form.FOLDER,
    XCFRAMEWORK.targets,
    swift_package_files,
)
