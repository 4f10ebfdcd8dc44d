"""Names of subjects: the places of a registry under which the versions of a schema are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from aflow.connect import ConnectorError

SubjectName: TypeAlias = Callable[[str, str, bool], str]
"""Returns the subject for a topic (``""`` if it is not known), the full name of a record, and True for keys."""


def topic_name(topic: str, record: str, is_key: bool) -> str:
    """Return "topic-value" or "topic-key": one schema for each topic, the default of Confluent's clients."""
    return f"{_known(topic)}-{'key' if is_key else 'value'}"


def record_name(topic: str, record: str, is_key: bool) -> str:
    """Return the name of the record: a record has the same schema in all topics."""
    return record


def topic_record_name(topic: str, record: str, is_key: bool) -> str:
    """Return "topic-record": several kinds of records in a topic, with schemas of their own there."""
    return f"{_known(topic)}-{record}"


def _known(topic: str) -> str:
    if not topic:
        raise ConnectorError(
            "the subject needs a topic, and this format has none: use it as format= of a sink, call for_topic(…), or "
            "choose subject=record_name"
        )
    return topic
