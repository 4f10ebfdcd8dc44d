"""An object as a file to read, of one version, by requests for ranges."""

from __future__ import annotations

import errno
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

from aflow.checkpoints import BucketError, ObjectInfo, Refused
from aflow_connectors.s3.bucket import Bucket

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Bytes of one request, while an object is read from begin to end.
_REQUEST: Final = 4 << 20


class ObjectFile:
    """One version of an object; see ``InputFile``."""

    def __init__(self, bucket: Bucket, info: ObjectInfo) -> None:
        self._bucket: Final = bucket
        self._info: Final = info

    def __str__(self) -> str:
        return self._bucket.shown(self._info.key)

    @property
    def suffix(self) -> str:
        return PurePosixPath(self._info.key).suffix

    def open(self, mode: Literal["rb"], /) -> BufferedReader:
        """Open the object without a request. Its reads raise ``OSError``, also if the object was replaced since."""
        return BufferedReader(_Ranges(self._bucket, self._info), _REQUEST)


class _Ranges(RawIOBase):
    def __init__(self, bucket: Bucket, info: ObjectInfo) -> None:
        super().__init__()
        self._bucket = bucket
        self._info = info
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET, /) -> int:
        base = {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._info.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        into = memoryview(buffer).cast("B")
        stop = min(self._at + len(into), self._info.size)
        if stop <= self._at:
            return 0
        version = {"e_tag": self._info.e_tag} if self._info.e_tag else {}
        try:
            data = self._bucket.read_range(self._info.key, self._at, stop, version=version)
        except Refused as exc:
            raise OSError(errno.ESTALE, "the object was replaced while it was read") from exc
        except BucketError as exc:
            raise OSError(errno.EIO, str(exc)) from exc
        into[: len(data)] = data
        self._at += len(data)
        return len(data)
