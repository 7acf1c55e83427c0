"""Machines of a cluster on one: network namespaces joined by a bridge, or addresses of the loopback device.

Namespaces need root and the command `ip`; they are removed at the end, and the own network is never touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Machine", "machines"]

_MARK = "NNEFC_TEST_MACHINE"
"""An environment variable, which all processes of a machine inherit."""


@dataclass
class Machine:
    """A machine of a cluster.

    Attributes:
        name: unique on this computer.
        address: at which the others reach it.
        prefix: of commands that run there.
        folder: where its processes write what they say.
    """

    name: str
    address: str
    prefix: Sequence[str]
    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: Sequence[object], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a program there; what it says is in a file of the folder, for messages of tests."""
        with (self.folder / f"{self.name}-{len(self.started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self.prefix, *map(str, command)],
                cwd=self.folder,
                env={**os.environ, **(environment or {}), _MARK: self.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return process

    def processes(self) -> list[int]:
        """The numbers of all processes that run there."""
        mark = f"{_MARK}={self.name}".encode()
        found = []
        if self.prefix:  # those that write over their environment, too
            listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True)
            found += map(int, listed.stdout.split())
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return sorted(set(found))

    def has_mapped(self, name: str) -> bool:
        """Whether a process there has a file mapped whose path has this in it."""
        for number in self.processes():
            with contextlib.suppress(OSError):
                if name in Path(f"/proc/{number}/maps").read_text():
                    return True
        return False

    def fail(self) -> None:
        """Ends all processes there at once, as a loss of power does."""
        while left := self.processes():
            for number in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            for process in self.started:
                process.poll()
            time.sleep(0.05)

    def log(self) -> str:
        """The last lines that its processes have written."""
        files = sorted(self.folder.glob(f"{self.name}-*.log"))
        return "\n".join(f"{file.name}:\n{file.read_text(errors='replace')[-20000:]}" for file in files)


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True).returncode == 0


@contextlib.contextmanager
def machines(count: int, folder: Path) -> Iterator[list[Machine]]:
    """Makes so many machines; at the end all of their processes are over."""
    base = f"nnefc{os.getpid()}"
    names = [f"{base}-{number}" for number in range(count)]
    joined = os.geteuid() == 0 and shutil.which("ip") is not None and _join(base, names)
    made = [
        Machine(name, f"10.77.0.{number}" if joined else f"127.0.0.{number}", prefix, folder)
        for number, name in enumerate(names, 1)
        for prefix in [("ip", "netns", "exec", name) if joined else ()]
    ]
    try:
        yield made
    finally:
        for machine in made:
            machine.fail()
        for name in (base, *names):
            _ip("netns", "del", name)


def _join(hub: str, names: Sequence[str]) -> bool:
    """Makes a namespace for each machine, and one with a bridge between them; False where the system has no such."""
    done = _ip("netns", "add", hub) and _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
    done = done and _ip("-n", hub, "link", "set", "bridge", "up")
    for number, name in enumerate(names, 1):
        port, own = f"port{number}", ("-n", name)
        done = (
            done
            and _ip("netns", "add", name)
            and _ip(*own, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", hub)
            and _ip("-n", hub, "link", "set", port, "master", "bridge", "up")
            and _ip(*own, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            and _ip(*own, "link", "set", "eth0", "up")
            and _ip(*own, "link", "set", "lo", "up")
        )
    if not done:
        for name in (hub, *names):
            _ip("netns", "del", name)
    return done
