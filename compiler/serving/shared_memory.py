"""Reads inputs from POSIX shared memory of clients on this machine, and writes outputs to it.

A region is a part of a shared-memory object. The server reads and writes it by system calls and does not map it: a
client can truncate its object at any time, and an access to mapped memory beyond its end would kill the server.

Source: Triton's extension of the Open Inference Protocol for system shared memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnefc.serving.failures import FailureKind, Refused

__all__ = ["REGION", "Location", "Regions", "shared_location"]

REGION = "shared_memory_region"
"""The parameter of a tensor that names its region."""

_OBJECTS = Path("/dev/shm")
_MAX_REGIONS = 1024
_OFF = (
    "there is no shared memory with clients: start the server with --shared-memory, or send the tensor in the request"
)


@dataclass(frozen=True)
class Location:
    """A part of a region, as a request names it."""

    region: str
    offset: int
    size: int

    def described(self, size: int) -> dict[str, Any]:
        """Return the parameters that tell a client of an output of `size` bytes at this location."""
        return {REGION: self.region, "shared_memory_offset": self.offset, "shared_memory_byte_size": size}


@dataclass(frozen=True)
class _Region:
    """A registered region: the key of its object, the object's open file, and the region's offset and size in bytes."""

    key: str
    file: int
    offset: int
    size: int

    def described(self, name: str) -> dict[str, Any]:
        return {"name": name, "key": self.key, "offset": self.offset, "byte_size": self.size}


class Regions:
    """The regions that clients have registered.

    Args:
        allowed: whether clients may use shared memory; else every call is refused.
        largest: maximum bytes of an input tensor.
    """

    def __init__(self, allowed: bool, largest: int) -> None:
        self.allowed = allowed
        self._largest = largest
        self._all: dict[str, _Region] = {}

    def register(self, name: str, given: Mapping[str, Any]) -> None:
        """Register a region of a shared-memory object that exists.

        Args:
            name: by which requests refer to the region.
            given: `key` (the name of the object), `offset` and `byte_size` in bytes.

        Raises:
            Refused: the name is in use, a field is wrong, the object does not exist or is too small, or shared memory
                is not allowed.
        """
        self._check_allowed()
        key, offset, size = given.get("key"), given.get("offset", 0), given.get("byte_size")
        if not (isinstance(key, str) and re.fullmatch(r"/?[^/\0]{1,255}", key)) or key.lstrip("/") in ("", ".", ".."):
            raise _invalid('"key" must be the name of an object of shared memory')
        if type(offset) is not int or type(size) is not int or offset < 0 or size <= 0:
            raise _invalid('"offset" and "byte_size" must be the begin and the size of the region, in bytes')
        if name in self._all:
            raise _invalid(f'shared memory region "{name[:100]}" is registered already')
        if len(self._all) >= _MAX_REGIONS:
            raise Refused(FailureKind.BUSY, f"{_MAX_REGIONS} regions are registered: unregister some")
        try:
            file = os.open(_OBJECTS / key.lstrip("/"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise _invalid(f"the shared memory {key!r} cannot be opened: {error.strerror}") from None
        if os.fstat(file).st_size < offset + size:
            os.close(file)
            raise _invalid(f"the shared memory {key!r} has fewer than {offset + size:,} bytes")
        self._all[name] = _Region(key, file, offset, size)

    def unregister(self, name: str | None) -> None:
        """Unregister a region, or all for None; an unknown name is not an error."""
        self._check_allowed()
        for each in [*self._all] if name is None else [name]:
            if (region := self._all.pop(each, None)) is not None:
                os.close(region.file)

    def status(self, name: str | None) -> list[dict[str, Any]]:
        """Return name, key, offset and size of a region, or of all for None."""
        self._check_allowed()
        if name is None:
            return [region.described(each) for each, region in self._all.items()]
        return [self._named(name).described(name)]

    def read(self, location: Location) -> bytes:
        """Return the bytes of an input.

        Raises:
            Refused: there is no such region, the tensor exceeds it or is too large, or its object has been truncated.
        """
        region = self._within(location)
        if location.size > self._largest:
            raise Refused(FailureKind.TOO_LARGE, f"a tensor has more than {self._largest:,} bytes")
        parts, done = [], 0
        while done < location.size:
            part = os.pread(region.file, location.size - done, region.offset + location.offset + done)
            if not part:
                raise _invalid(f'the shared memory of region "{location.region[:100]}" has become smaller')
            parts.append(part)
            done += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, location: Location, data: bytes) -> None:
        """Write an output.

        Raises:
            Refused: there is no such region, the output exceeds the location, or the object has been truncated.
        """
        region = self._within(location)
        if len(data) > location.size:
            raise _invalid(f'an output has {len(data):,} bytes, but region "{location.region[:100]}" {location.size:,}')
        if os.fstat(region.file).st_size < region.offset + location.offset + len(data):  # writing would extend it
            raise _invalid(f'the shared memory of region "{location.region[:100]}" has become smaller')
        done = 0
        while done < len(data):
            done += os.pwrite(region.file, data[done:], region.offset + location.offset + done)

    def _within(self, location: Location) -> _Region:
        self._check_allowed()
        region = self._named(location.region)
        if location.offset + location.size > region.size:
            raise _invalid(f'region "{location.region[:100]}" has {region.size:,} bytes, and a tensor goes beyond them')
        return region

    def _named(self, name: str) -> _Region:
        if name not in self._all:
            raise _invalid(f'there is no shared memory region "{name[:100]}": register it')
        return self._all[name]

    def _check_allowed(self) -> None:
        if not self.allowed:
            raise Refused(FailureKind.UNSUPPORTED, _OFF)


def shared_location(parameters: Mapping[str, Any]) -> Location | None:
    """Return the location in shared memory that a tensor's parameters name; None if they name none.

    Raises:
        Refused: the parameters are of wrong types or negative.
    """
    region = parameters.get(REGION)
    if not region:
        return None
    offset, size = parameters.get("shared_memory_offset", 0), parameters.get("shared_memory_byte_size")
    if not isinstance(region, str) or type(offset) is not int or type(size) is not int or offset < 0 or size < 0:
        raise _invalid("shared_memory_region, _offset and _byte_size must be a name and two sizes in bytes")
    return Location(region, offset, size)


def _invalid(words: str) -> Refused:
    return Refused(FailureKind.INVALID, words)
