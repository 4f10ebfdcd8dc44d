"""Encoding of records that are sent from one fragment to another.

Records of one exit, for one partition of the reader, within a short span of event time, are encoded together as a
*record block*: the engine moves and sorts one row for hundreds of records. A block is in the order of event time, and
records of equal time keep the order in which they were emitted. A block spans at most ten seconds of event time, or as
much as time advanced per batch so far. So a reader that receives blocks by their first times (``merge.py``) has few of
them open at once, even for an unordered history, and a history of one record a minute does not become blocks of one
record.

Payloads are read by the code that wrote them, in the same run, and never stored for longer, so they may be pickled:
executors run code of the same run anyway. Most are not pickled: pickling a dataclass takes 4 us, a class with plain
fields a twentieth of that without pickle, and one with a datetime a third with pickled columns. A payload is msgpack of
``[header, keys, times, columns …]``, with times relative to the first one; *plain* is None, bool, int, float, str and
bytes. The header is

- the code and the header of a class, as in ``aflow.model.codecs.records``, if all records are instances of it with
  plain fields: a column for each field;
- ``(`` for tuples of plain values, of one length: a column for each item;
- ``.`` for plain values, for lists of them, and for dicts from str to them: one column;
- empty otherwise: the pickle of keys, header and columns takes the place of the keys. If the header inside it is empty,
  the values themselves take the place of the columns.
"""

from __future__ import annotations

import pickle
import sys
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from io import BytesIO
from itertools import chain, starmap
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from aflow.backfill.fragments import Exit
from aflow.errors import InternalError, OperatorError, described, shown
from aflow.model.batch import Batch
from aflow.model.codecs import CodecError
from aflow.model.codecs.record_kinds import FormCode, RecordForm, form_named, form_of
from aflow.model.time import Timestamp
from aflow.runtime.edges import KeyOwners

#: Types that msgpack preserves; subclasses are not.
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})

_PICKLED, _VALUE, _TUPLE = "", ".", "("

#: Maximum number of records in a block.
_MOST: Final = 1024
#: Span of event time (ms) that is always allowed in a block.
_SPAN: Final = 10_000

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Some records of one exit, encoded."""

    exit: int
    part: int
    """Subtask of the reader; 0 for a sink."""
    time: Timestamp
    """Event time of the first record; 0 for a sink."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """Content of a record block: columns of equal length."""

    keys: list[Any]
    times: list[Timestamp]
    values: list[Any]


class ExitEncoder:
    """Encoder for the records of one exit. ``readers`` is the number of subtasks of the reading fragment."""

    def __init__(self, exit: Exit, *, key_groups: int, readers: int) -> None:
        self._exit = exit
        self._readers = readers
        self._owners = KeyOwners(exit.origin.name, key_groups, readers)
        #: Number of batches, and the median time of the first one.
        self._batches = 0
        self._began: Timestamp = 0

    def record_blocks(self, batch: Batch[Any]) -> Iterator[RecordBlock]:
        """Yield the records of ``batch``, encoded. Raises ``OperatorError`` for an invalid key, and for a record that
        cannot be pickled.
        """
        # Hot path (benchmark `spark`).
        exit = self._exit
        if exit.reader is None:
            for at in range(0, len(batch), _MOST):
                values = batch.values[at : at + _MOST]
                nothing = [0] * len(values)
                yield RecordBlock(
                    exit.number, 0, 0, self._payload([None] * len(values), nothing, values)
                )
            return
        keys, times = batch.keys, batch.timestamps
        if keys is None or times is None:
            raise InternalError(f"a batch without keys or times leaves {exit.origin.name!r}")
        if not times:
            return
        values, span = batch.values, self._span(times)
        for part, indexes in enumerate(self._indexes_by_part(batch, keys)):
            for some in _runs(indexes, times, span):
                first = times[some[0]]
                offsets = [time - first for time in _items_at(times, some)]
                payload = self._payload(_items_at(keys, some), offsets, _items_at(values, some))
                yield RecordBlock(exit.number, part, first, payload)

    def _span(self, times: Sequence[Timestamp]) -> int:
        """Return the maximum span (ms) of a block: a history in order may keep its batches.

        Uses median times, since some records may be years away. If the history is unordered, or is read several times,
        the median does not advance, and blocks are short.
        """
        middle = sorted(times)[len(times) // 2]
        self._batches += 1
        if self._batches == 1:
            self._began = middle
            return _SPAN
        return max(_SPAN, abs(middle - self._began) // (self._batches - 1))

    def _indexes_by_part(self, batch: Batch[Any], keys: Sequence[Hashable]) -> Iterable[list[int]]:
        """Return the indexes of the records in the batch, for each part."""
        known = self._owners.known
        try:
            parts = [known[key] for key in keys]
        except (KeyError, TypeError):
            self._owners.learn(batch, keys)
            parts = [known[key] for key in keys]
        if self._readers == 1:
            return [list(range(len(parts)))]
        dealt: list[list[int]] = [[] for _ in range(self._readers)]
        for index, part in enumerate(parts):
            dealt[part].append(index)
        return dealt

    def _payload(self, keys: list[Any], times: list[int], values: list[Any]) -> bytes:
        header, columns = _columns(values)
        if header != _PICKLED and _all_plain(keys, header, columns):
            with suppress(
                OverflowError, ValueError
            ):  # an int of more than 64 bits, half a surrogate
                return _encode((header, keys, times, *columns))
        try:
            return _encode((_PICKLED, pickle.dumps((keys, header, columns), 5), times))
        except Exception as exc:  # whatever a class's own pickling raises
            raise self._unpicklable(values, exc) from exc

    def _unpicklable(self, values: list[Any], cause: Exception) -> OperatorError:
        record = next((value for value in values if not _pickles(value)), values[0])
        return OperatorError(
            f"step {self._exit.origin.name!r} sent {shown(record)}, which cannot go from one executor to another: "
            f"{_reason(record, cause)}",
            operator=self._exit.origin.name,
            record=record,
        )


def _reason(record: object, cause: Exception) -> str:
    """Return why ``record`` cannot be pickled, and the cure."""
    found = _ClassFinder()
    with suppress(Exception):
        found.dump(record)
    if found.unnamed is None:
        return f"{str(cause) or described(cause)}; make it plain values, a dataclass, a NamedTuple or a Struct"
    module, name = found.unnamed.__module__, found.unnamed.__qualname__
    return (
        f"class {name} is not found by its name in module {module!r}, as one that is defined inside a function is "
        f"not; define it at the top of a module"
    )


def decode_block(payload: bytes | memoryview, time: Timestamp) -> DecodedBlock:
    """Return the content of a record block; ``time`` is that of its first record. Raises ``CodecError`` for an unknown
    class.
    """
    # Hot path (benchmark `spark`).
    header, keys, times, *columns = _decode(payload)
    if header == _PICKLED:
        keys, header, columns = pickle.loads(keys)  # ours: see above
    if header == _PICKLED:
        values = columns
    elif header == _VALUE:
        values = columns[0]
    elif header == _TUPLE:
        values = list(zip(*columns, strict=True))
    else:
        values = _maker_of(header)(columns)
    return DecodedBlock(keys, [time + after for after in times] if time else times, values)


def _runs(indexes: list[int], times: Sequence[Timestamp], span: int) -> Iterator[list[int]]:
    """Yield ``indexes`` in time order, in runs bounded in number of records and in ``span`` (ms)."""
    moments = _items_at(times, indexes)
    ordered = sorted(moments)
    if ordered != moments:
        indexes = sorted(indexes, key=times.__getitem__)
        moments = ordered
    start = 0
    while start < len(indexes):
        stop = min(start + _MOST, len(indexes))
        if moments[stop - 1] - moments[start] > span:
            stop = bisect_right(moments, moments[start] + span, start, stop)
        yield indexes[start:stop]
        start = stop


def _items_at(column: Sequence[Any], indexes: list[int]) -> list[Any]:
    """Return the items at ``indexes``."""
    return list(itemgetter(*indexes)(column)) if len(indexes) > 1 else [column[i] for i in indexes]


def _columns(values: list[Any]) -> tuple[str, Sequence[Any]]:
    """Return the header and the columns of ``values``; the values themselves if they have no columns."""
    kinds = set(map(type, values))
    if kinds in ({dict}, {list}) or _PLAIN.issuperset(kinds):
        return _VALUE, [values]
    if len(kinds) != 1:
        return _PICKLED, values
    kind = kinds.pop()
    if kind is tuple:
        header, columns = _TUPLE, _of_items(values)
    else:
        known = _known(kind)
        header, columns = (_PICKLED, None) if known is None else (known.header, known.take(values))
    return (header, columns) if columns else (_PICKLED, values)


def _all_plain(keys: list[Any], header: str, columns: Sequence[list[Any]]) -> bool:
    """Return True if msgpack decodes to equal values."""
    if not _PLAIN.issuperset(map(type, keys)):
        return False
    if header == _VALUE and type(columns[0][0]) is dict:
        return _are_plain(columns[0])
    if header == _VALUE and type(columns[0][0]) is list:
        return _PLAIN.issuperset(map(type, chain.from_iterable(columns[0])))
    return all(_PLAIN.issuperset(map(type, column)) for column in columns)


def _of_items(values: list[Any]) -> list[list[Any]] | None:
    """Return the columns of tuples; None if their lengths differ."""
    lengths = set(map(len, values))
    if len(lengths) > 1:
        return None
    return [list(map(itemgetter(index), values)) for index in range(lengths.pop())]


def _are_plain(values: list[dict[Any, object]]) -> bool:
    """Return True for dicts from str to plain values."""
    names = chain.from_iterable(values)
    inner = chain.from_iterable(value.values() for value in values)
    return {str}.issuperset(map(type, names)) and _PLAIN.issuperset(map(type, inner))


@dataclass(frozen=True, slots=True)
class _Known:
    """A class whose instances are not pickled, with its header in payloads: the code of its form, then its header."""

    header: str
    take: Callable[[list[Any]], list[list[Any]] | None]
    """Returns the columns of some instances; None if one has other attributes than its fields."""


#: By class; None if it has no form, or cannot be found by its name.
_KNOWN: Final[dict[type, _Known | None]] = {}


def _known(kind: type) -> _Known | None:
    if kind not in _KNOWN:
        try:
            form = form_of(kind)
        except CodecError:
            _KNOWN[kind] = None
        else:
            _KNOWN[kind] = _Known(f"{form.code} {form.header}", _taker(kind, form))
    return _KNOWN[kind]


def _taker(kind: type, form: RecordForm) -> Callable[[list[Any]], list[list[Any]] | None]:
    """Return the fastest function from instances of ``kind`` to their columns."""
    if form.closed and form.code == FormCode.NAMED_TUPLE:
        return _of_items
    if form.closed and form.code in (FormCode.DATACLASS, FormCode.STRUCT):
        getters = [attrgetter(name) for name in form.fields]
        return lambda values: [list(map(get, values)) for get in getters]
    if form.code == FormCode.DATACLASS and form.by_dict:
        return partial(_of_attributes, form.fields)

    def take(values: list[Any]) -> list[list[Any]] | None:
        rows = form.rows(values)
        return None if rows is None else [list(column) for column in zip(*rows, strict=True)]

    return take


def _of_attributes(names: Sequence[str], values: list[Any]) -> list[list[Any]] | None:
    """Return the columns of instances with a ``__dict__``; None if one has other attributes."""
    held = [value.__dict__ for value in values]
    if set(map(len, held)) != {len(names)}:
        return None
    try:
        return [list(map(itemgetter(name), held)) for name in names]
    except KeyError:  # as many, but others
        return None


#: By header, the function that makes values of columns.
_MAKERS: Final[dict[str, Callable[[list[list[Any]]], list[Any]]]] = {}


def _maker_of(header: str) -> Callable[[list[list[Any]]], list[Any]]:
    """Return the maker of values from columns. Raises ``CodecError`` and ``ImportError`` for an unknown class."""
    make = _MAKERS.get(header)
    if make is None:
        code, _, rest = header.partition(" ")
        # The run that reads a block wrote it, in another worker process, which has imported the module. Stored state
        # names classes too, but decoding it imports nothing.
        import_module(rest.partition(":")[0])
        make = _MAKERS[header] = _maker(form_named(int(code), rest))
    return make


def _maker(form: RecordForm) -> Callable[[list[list[Any]]], list[Any]]:
    called = form.called
    if called is not None:
        return lambda columns: list(starmap(called, zip(*columns, strict=True)))
    return lambda columns: list(map(form.make, zip(*columns, strict=True)))


def forget_classes() -> None:
    """Clear the caches of classes: a process that runs one script after another may redefine names."""
    _MAKERS.clear()
    _KNOWN.clear()
    form_named.cache_clear()


def _pickles(value: object) -> bool:
    try:
        pickle.dumps(value, 5)
    except Exception:
        return False
    return True


class _ClassFinder(pickle.Pickler):
    """Finds the first class in a pickled object that cannot be found by its name."""

    def __init__(self) -> None:
        super().__init__(BytesIO(), 5)
        self.unnamed: type | None = None

    def reducer_override(self, obj: Any) -> Any:
        if self.unnamed is None and isinstance(obj, type) and not _is_named(obj):
            self.unnamed = obj
        return NotImplemented


def _is_named(of: type) -> bool:
    """Return True if ``of`` is what its module has under its name."""
    try:
        return attrgetter(of.__qualname__)(sys.modules[of.__module__]) is of
    except (AttributeError, KeyError):
        return False
