"""Whether the bytes of a file are those that a manifest promises."""

from __future__ import annotations

from hashlib import sha256
from zlib import crc32

from aflow.state.manifest import FileRef


def checksum(data: bytes, before: int = 0) -> str:
    """The CRC-32 of ``data`` as manifests write it; ``before`` is that of what stands in front of it."""
    return in_hexadecimal(crc32(data, before))


def in_hexadecimal(crc: int) -> str:
    """A CRC-32 as manifests write it: eight digits."""
    return f"{crc:08x}"


def wrong_size(ref: FileRef, size: int) -> str:
    """Return what is wrong with a file of ``size`` bytes, which is not the size that ``ref`` promises."""
    return (
        f"is {'truncated' if size < ref.size else 'too long'}: {size} bytes in place of {ref.size}"
    )


def wrong_with(ref: FileRef, data: bytes) -> str | None:
    """Why ``data`` is not the content that ``ref`` promises, for a person; None if it is."""
    if len(data) != ref.size:
        return wrong_size(ref, len(data))
    algorithm, colon, _ = ref.checksum.partition(":")
    if not colon:
        found = checksum(data)
    elif algorithm == "sha256":
        found = f"sha256:{sha256(data).hexdigest()}"
    else:
        return f"has a checksum of a kind that this version of aflow does not know: {ref.checksum}"
    if found != ref.checksum:
        return f"is corrupt: its checksum is {found} in place of {ref.checksum}"
    return None
