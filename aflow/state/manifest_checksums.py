"""Comparison of the bytes of a file with size and checksum in a manifest."""

from __future__ import annotations

from hashlib import sha256
from zlib import crc32

from aflow.state.manifest import FileRef


def checksum(data: bytes, before: int = 0) -> str:
    """Return the CRC-32 of ``data`` as manifests write it; ``before`` is that of the preceding bytes."""
    return in_hexadecimal(crc32(data, before))


def in_hexadecimal(crc: int) -> str:
    """Return a CRC-32 as manifests write it: eight digits."""
    return f"{crc:08x}"


def wrong_size(ref: FileRef, size: int) -> str:
    """Return the description of a file whose ``size`` differs from that in ``ref``."""
    return (
        f"is {'truncated' if size < ref.size else 'too long'}: {size} bytes in place of {ref.size}"
    )


def wrong_with(ref: FileRef, data: bytes) -> str | None:
    """Return why ``data`` is not the content of ``ref``, for a message; None if it is."""
    if len(data) != ref.size:
        return wrong_size(ref, len(data))
    algorithm, colon, _ = ref.checksum.partition(":")
    if not colon:
        found = checksum(data)
    elif algorithm == "sha256":
        found = f"sha256:{sha256(data).hexdigest()}"
    else:
        return f"has a checksum of a kind unknown to this version of aflow: {ref.checksum}"
    if found != ref.checksum:
        return f"is corrupt: its checksum is {found} in place of {ref.checksum}"
    return None
