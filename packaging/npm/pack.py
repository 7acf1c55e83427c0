"""Make the npm package of the loader of WebAssembly.

    python packaging/npm/pack.py [FOLDER]

writes FOLDER/nnefc (build/npm/nnefc), with the version of the compiler: `npm pack` and `npm publish` take it from
there.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNTIME = ROOT / "targets" / "runtime"


def pack(folder: Path) -> Path:
    """Write the package into `folder`; returns where it is."""
    package = folder / "nnefc"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    manifest = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    manifest = {"name": manifest.pop("name"), "version": settings["project"]["version"], **manifest}
    (package / "package.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for name in manifest["files"]:
        shutil.copy(RUNTIME / name, package)
    for source in (HERE / "README.md", ROOT / "LICENSE"):
        shutil.copy(source, package)
    return package


if __name__ == "__main__":
    print(pack(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "npm"))
