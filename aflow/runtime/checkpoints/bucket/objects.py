"""The objects of a bucket as checkpoints use them: an interface, implemented by a connector with its client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from zlib import crc32

from aflow.runtime.checkpoints.directory.files import Written
from aflow.state.manifest import in_hexadecimal

Version: TypeAlias = Mapping[str, str]
"""Identifies a version of an object, as an ETag does."""


class BucketError(Exception):
    """A request failed; its effect is unknown. The message is for users, and has no secrets."""


class NoObject(BucketError):
    """The object does not exist."""


class Refused(BucketError):
    """The condition of a request was not met."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing; ``key`` is relative to the URL of the bucket."""

    key: str
    size: int
    """In bytes."""
    e_tag: str


class CheckpointBucket(Protocol):
    """The objects below a URL; keys are relative to it. All methods block, and are called in worker threads.

    They raise ``BucketError``. An object appears as a whole or not at all, and each request sees those that were
    completed before.
    """

    @property
    def url(self) -> str:
        """The URL, without a slash at its end."""
        ...

    def shown(self, key: str) -> str:
        """Return the URL of an object."""
        ...

    def same_root(self, url: str) -> CheckpointBucket | None:
        """Return the objects below another URL of the same bucket; None for other URLs and paths."""
        ...

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, Version]:
        """Return an object and its version. Raises ``NoObject``, and ``BucketError`` if it is above ``limit`` bytes."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """Return the size and version of an object. Raises ``NoObject``."""
        ...

    def create(self, key: str, data: bytes) -> Version:
        """Write an object that must not exist. Raises ``Refused`` if it does."""
        ...

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        """Write an object that must have ``version``. Raises ``Refused`` if it has another one."""
        ...

    def write(self, key: str, pieces: Iterable[bytes]) -> int:
        """Write an object, which may exist, and return its size. Raises the errors of ``pieces`` too."""
        ...

    def objects(self, prefix: str) -> Sequence[ObjectInfo]:
        """Return all objects below ``prefix``, a folder, in the order of their keys."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that does not exist is no error."""
        ...


def written(bucket: CheckpointBucket, key: str, pieces: Iterable[bytes]) -> Written:
    """Write an object; return its size and checksum as a manifest has them. Raises as ``CheckpointBucket.write``."""
    size = crc = 0

    def counted() -> Iterator[bytes]:
        nonlocal size, crc
        for piece in pieces:
            size += len(piece)
            crc = crc32(piece, crc)
            yield piece

    bucket.write(key, counted())
    return Written(size, in_hexadecimal(crc))
