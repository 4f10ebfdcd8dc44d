"""Codecs: values as bytes that another process, and a later version of the program, can read. Read ``base`` first.

``codec_for(Payment)`` is typed, fast and safe, and tolerates added fields with defaults and removed fields; ``PLAIN``
restores values of plain Python types exactly and refuses the rest; ``PICKLE`` accepts nearly everything, on request
only.

A codec may have an attribute ``schema``, a ``Schema`` of its bytes: snapshots contain it, so that a restore detects at
once whether it can read them.
"""

from aflow.model.codecs.base import Codec as Codec
from aflow.model.codecs.base import CodecError as CodecError
from aflow.model.codecs.base import decode_all as decode_all
from aflow.model.codecs.base import encode_all as encode_all
from aflow.model.codecs.base import unguarded_decoder as unguarded_decoder
from aflow.model.codecs.pickled import PICKLE as PICKLE
from aflow.model.codecs.pickled import Pickled as Pickled
from aflow.model.codecs.plain import PLAIN as PLAIN
from aflow.model.codecs.records import RECORDS as RECORDS
from aflow.model.codecs.schema import Schema as Schema
from aflow.model.codecs.typed import codec_for as codec_for

__all__ = [
    "PICKLE",
    "PLAIN",
    "RECORDS",
    "Codec",
    "CodecError",
    "Pickled",
    "Schema",
    "codec_for",
    "decode_all",
    "encode_all",
    "unguarded_decoder",
]
