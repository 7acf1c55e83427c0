"""What is published: python packaging/release.py [FOLDER], or make dist.

Writes the archive of the sources, the wheels of nnefc (with its bill of materials), nnefc-slim and nnefc-runtime, and
`SHA256SUMS`. The same sources and installed packages give the same bytes, which the digests let others check.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from bill_of_materials import bill_of_materials
from runtime_wheel import write_wheel
from slim_wheel import write_slim_wheel
from wheel_file import pack_wheel, unpack_wheel

__all__ = ["release"]

ROOT = Path(__file__).resolve().parents[1]

EXTRAS = ("cuda", "serve")
"""Those of the package that its bill of materials follows: what compiles and serves."""


def release(folder: Path) -> list[Path]:
    """Write the files; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nnefc-release-") as name:
        made = Path(name)
        archive = _build("sdist", ROOT, made)
        with tarfile.open(archive) as opened:
            opened.extractall(made / "sources", filter="data")
        (sources,) = (made / "sources").iterdir()
        wheel = _build("wheel", sources, made)  # of what is in the archive, and not what lies about here
        files = unpack_wheel(wheel)
        if (here := version("nnefc")) != wheel.name.split("-")[1]:
            raise SystemExit(f"version {here} of nnefc is installed here, and {wheel.name} was built: install it")
        (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
        files[f"{info}/sboms/nnefc.cdx.json"] = bill_of_materials("nnefc", EXTRAS).encode()
        whole = pack_wheel(files, folder / wheel.name)
        written = [_repack(archive, folder), whole, write_slim_wheel(whole, folder), write_wheel(folder)]
    digests = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in written]
    (folder / "SHA256SUMS").write_text("".join(digests))
    return [*written, folder / "SHA256SUMS"]


def _build(kind: str, sources: Path, folder: Path) -> Path:
    code = f"import sys, setuptools.build_meta as backend; print(backend.build_{kind}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=sources, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return folder / done.stdout.splitlines()[-1]


def _repack(archive: Path, folder: Path) -> Path:
    """The archive of sources without what differs from build to build: dates, owners and order."""
    content = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            file = old.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
            member.pax_headers = {}
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            new.addfile(member, file)
    path = folder / archive.name
    path.write_bytes(gzip.compress(content.getvalue(), mtime=0))
    return path


def main() -> None:
    for path in release(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"):
        print(f"wrote {path} ({path.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
