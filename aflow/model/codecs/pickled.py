"""Pickle, on request."""

from __future__ import annotations

import pickle
from typing import Final, Generic, TypeVar, cast

from aflow.errors import described, shown
from aflow.model.codecs.base import Codec, CodecError

T = TypeVar("T")

#: Readable by Python 3.8 and later; fixed, so that an older interpreter can read the bytes of a newer one.
_PROTOCOL: Final = 5


class Pickled(Generic[T]):
    """The codec for values of nearly any type: ``ValueState("model", codec=Pickled[Model]())``.

    Decoding RUNS CODE that the bytes choose: only for storage that no other party can write to. Bytes name classes by
    module, so moving or renaming a class makes them unreadable, and changes of a class are not checked.
    """

    __slots__ = ("__orig_class__",)

    @property
    def name(self) -> str:
        return "pickle"

    def encode(self, value: T) -> bytes:
        try:
            return pickle.dumps(value, protocol=_PROTOCOL)
        except Exception as exc:  # __reduce__ and __getstate__ are the user's: they raise anything
            raise CodecError(
                f"{shown(value)} cannot be pickled: {str(exc) or described(exc)}"
            ) from exc

    def decode(self, data: bytes) -> T:
        try:
            return cast("T", pickle.loads(data))  # the argument of encode
        except Exception as exc:  # so do __setstate__ and constructors
            raise CodecError(
                f"{len(data)} bytes cannot be unpickled: {described(exc)}; "
                f"was a class or module renamed, or were they written by another codec?"
            ) from exc


#: ``Pickled`` for values of any type.
PICKLE: Final[Codec[object]] = Pickled[object]()
