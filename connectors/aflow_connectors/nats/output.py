"""The stream of the output: its limits, and the messages that it can take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from aflow.connect import SinkError
from aflow.errors import described, shown
from aflow_connectors.messages import Headers, MessageEncoder
from aflow_connectors.nats.client import NOT_FOUND, JetStreamError, NatsLink, NatsSession
from aflow_connectors.nats.publications import NatsMessage

T = TypeVar("T")

#: Minimum of the duplicate window (s): messages of a lost connection may be under way for some time.
_SMALLEST_WINDOW: Final = 5.0

#: Bytes of the headers that the sink adds, at most, and of each header beside its name and value.
_OWN_HEADERS: Final = 400
_PER_HEADER: Final = 4

#: The maximum number of subjects that are known to be of the stream.
_MOST_KNOWN: Final = 10_000

_RESERVED: Final = "nats-"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The settings of a stream that matter for its publishers."""

    name: str
    subjects: tuple[str, ...]
    window: float
    """The duplicate window in seconds."""
    largest: int
    """The maximum size of a message in bytes, headers included."""
    replicas: int
    retention: str
    per_subject: int
    """Maximum number of messages of a subject; 0 or less for no limit."""
    is_acknowledging: bool

    @classmethod
    def of(cls, config: Mapping[str, Any], max_payload: int) -> StreamLimits:
        size = int(config.get("max_msg_size", -1))
        return cls(
            name=str(config["name"]),
            subjects=tuple(config.get("subjects") or ()),
            window=int(config.get("duplicate_window", 0)) / 1e9,
            largest=max_payload if size < 0 else min(size, max_payload),
            replicas=int(config.get("num_replicas", 1)),
            retention=str(config.get("retention", "limits")),
            per_subject=int(config.get("max_msgs_per_subject", 0)),
            is_acknowledging=not config.get("no_ack", False),
        )

    def captures(self, subject: str) -> bool:
        """Return True if messages of ``subject`` are stored in the stream."""
        return any(_is_match(pattern.split("."), subject.split(".")) for pattern in self.subjects)

    def check_exactly_once(self, link: NatsLink) -> None:
        """Raise ``SinkError`` if it cannot be known after a crash which messages were published."""
        reason = None
        if self.retention != "limits":
            reason = f"it removes messages that were read (retention {self.retention!r})"
        elif self.per_subject > 0:
            reason = (
                f"it keeps {self.per_subject} messages of a subject only (max_msgs_per_subject)"
            )
        elif self.window < _SMALLEST_WINDOW:
            reason = (
                f"its duplicate window is {self.window:g} s, and {_SMALLEST_WINDOW:g} s is the minimum: "
                f"nats stream edit {self.name} --dupe-window 2m"
            )
        if reason is not None:
            raise link.error(
                f"stream {self.name!r} cannot have exactly-once output: {reason}. Change it, or use exactly_once=False"
            )


class PublicationMapper(Generic[T]):
    """Maps records to messages, and refuses those that the stream cannot take: at a commit it would be too late."""

    def __init__(
        self,
        place: str,
        encoder: MessageEncoder[T],
        subject: str | Callable[[T], str],
        limits: StreamLimits,
    ) -> None:
        self._place = place
        self._encoder = encoder
        self._subject = subject
        self._limits = limits
        #: Subjects of the stream.
        self._known: set[str] = set()

    async def of(self, values: Sequence[T]) -> list[NatsMessage]:
        """Return the messages. Raises ``SinkError`` with the record for one that is none."""
        raw = await self._encoder.encode(values)
        found: list[NatsMessage] = []
        largest = self._limits.largest - _OWN_HEADERS
        for record, message in zip(values, raw, strict=True):
            subject, value = self._subject_of(record), message.value
            if value is None:
                raise self._refused(record, "is a tombstone, which NATS does not have")
            headers = self._headers(record, message.headers) if message.headers else {}
            size = len(value) + sum(
                len(name.encode()) + len(text.encode()) + _PER_HEADER
                for name, text in headers.items()
            )
            if size > largest:
                raise self._refused(
                    record,
                    f"is a message of {size:,} bytes, and the server and stream {self._limits.name!r} take "
                    f"{largest:,} (max_payload, max_msg_size)",
                )
            found.append((subject, value, headers))
        return found

    def _subject_of(self, record: T) -> str:
        subject: object = self._subject
        if callable(self._subject):
            try:
                subject = self._subject(record)
            except Exception as exc:
                raise self._refused(
                    record, f"has no subject: the function failed: {described(exc)}"
                ) from exc
        if isinstance(subject, str) and subject in self._known:
            return subject
        if (
            not isinstance(subject, str)
            or not subject
            or any(one in subject for one in " \t\r\n*>")
        ):
            raise self._refused(record, f"has {shown(subject)} as subject, which is no name")
        if not self._limits.captures(subject):
            raise self._refused(
                record,
                f"has the subject {subject!r}, which stream {self._limits.name!r} does not capture; it has "
                f"{', '.join(self._limits.subjects)}",
            )
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(subject)
        return subject

    def _headers(self, record: T, headers: Headers) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, data in headers:
            if name.lower().startswith(_RESERVED):
                continue  # they are orders to the server
            try:
                text = data.decode()
            except UnicodeDecodeError:
                raise self._refused(
                    record, f"has a header {name!r} that is not UTF-8; headers of NATS are text"
                ) from None
            if not name or not name.isascii() or any(one in name for one in ": \t\r\n"):
                raise self._refused(record, f"has a header {name!r}, which is no name")
            if text != text.strip() or "\r" in text or "\n" in text:
                raise self._refused(
                    record, f"has a header {name!r} with several lines, or spaces around it"
                )
            if name in found:
                raise self._refused(record, f"has two headers {name!r}")
            found[name] = text
        return found

    def _refused(self, record: T, reason: str) -> SinkError:
        return SinkError(f"{self._place}: record {shown(record)} {reason}")


async def look_up(
    link: NatsLink, subject: str | Callable[[Any], str], stream: str | None
) -> StreamLimits:
    """Return the limits of the stream of ``subject``. Raises ``SinkError`` if there is none."""

    async def look(session: NatsSession) -> StreamLimits:
        name = stream
        if name is None:
            found = (await session.request("STREAM.NAMES", {"subject": subject})).get("streams")
            if not found:
                raise link.error(f"no stream captures the subject {subject!r}; create one first")
            name = found[0]
        info = await session.request(f"STREAM.INFO.{name}")
        return StreamLimits.of(info["config"], session.max_payload)

    try:
        limits = await link.run(look)
    except JetStreamError as exc:
        if exc.code == NOT_FOUND:
            raise link.error(f"there is no stream {stream!r}; create it first") from exc
        raise link.error(f"stream {stream!r}: {exc}") from exc
    if isinstance(subject, str) and not limits.captures(subject):
        raise link.error(
            f"stream {limits.name!r} does not capture the subject {subject!r}; it has "
            f"{', '.join(limits.subjects)}"
        )
    if not limits.is_acknowledging:
        raise link.error(f"stream {limits.name!r} does not acknowledge messages (no_ack)")
    return limits


async def progress_stream(link: NatsLink, name: str, *, replicas: int) -> None:
    """Create the stream with the progress of the writers, if it does not exist. Raises ``SinkError``."""

    async def create(session: NatsSession) -> Mapping[str, Any]:
        try:
            return await session.request(f"STREAM.INFO.{name}")
        except JetStreamError as exc:
            if exc.code != NOT_FOUND:
                raise
        return await session.request(
            f"STREAM.CREATE.{name}",
            {
                "name": name,
                "subjects": [f"{name}.>"],
                "retention": "limits",
                "storage": "file",
                "discard": "old",
                "max_msgs_per_subject": 1,
                "num_replicas": replicas,
            },
        )

    try:
        info = await link.run(create)
    except JetStreamError as exc:
        raise link.error(f"the stream {name!r} of the progress cannot be created: {exc}") from exc
    config = info["config"]
    if f"{name}.>" not in config["subjects"] or config.get("max_msgs_per_subject") != 1:
        raise link.error(
            f"the stream {name!r} is not for the progress of sinks: it must have the subjects '{name}.>' and keep 1 "
            f"message of each (max_msgs_per_subject)"
        )


def _is_match(pattern: Sequence[str], tokens: Sequence[str]) -> bool:
    for index, part in enumerate(pattern):
        if part == ">":
            return len(tokens) > index
        if index >= len(tokens) or part not in ("*", tokens[index]):
            return False
    return len(pattern) == len(tokens)
