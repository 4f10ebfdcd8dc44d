"""Messages on their way to a producer of aiokafka, in batches of a partition.

``AIOKafkaProducer.send`` takes one message at a time, and hashes each key in Python. Batches that are built here are
the same on the wire, and equal keys are hashed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from aflow.errors import described
from aflow_connectors.kafka.client import errors, partitioner
from aflow_connectors.messages import Headers

Output = tuple[str, bytes | None, bytes | None, int | None, Headers]
"""A message: topic, value, key, timestamp and headers."""

PRODUCER: Final = {"max_batch_size": 131_072}
"""Defaults of this connector. A request has one batch for each partition: 16 KB, the default of aiokafka, make many."""

#: Hash values of keys, as of Kafka's Java client.
_hashed = lru_cache(maxsize=65_536)(partitioner.murmur2)


async def send(producer: Any, messages: Iterable[Output]) -> None:
    """Send ``messages``, and wait until the broker has all of them. Raises errors of aiokafka."""
    sending = _Sending(producer)
    try:
        for message in messages:
            builder, place = await sending.builder_for(message)
            _, value, key, time, headers = message
            added = builder.append(timestamp=time, key=key, value=value, headers=list(headers))
            if added is None:  # it is full
                await sending.send(place)
                builder, _ = await sending.builder_for(message, place)
                builder.append(timestamp=time, key=key, value=value, headers=list(headers))
        for place in list(sending.builders):
            await sending.send(place)
    except BaseException:
        for future in sending.futures:
            future.cancel()  # what becomes of them is of no interest
        raise
    await asyncio.gather(*sending.futures)


class _Sending:
    """The batches of one call of ``send``."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        #: Open batches, by topic and partition.
        self.builders: dict[tuple[str, int], Any] = {}
        self.futures: list[asyncio.Future[object]] = []
        self._partitions: dict[str, list[int]] = {}
        #: Number of messages without key, which go to the partitions in turn.
        self._without_key = 0

    async def builder_for(
        self, message: Output, place: tuple[str, int] | None = None
    ) -> tuple[Any, tuple[str, int]]:
        """Return the open batch of the partition of ``message``, or of ``place``, and the partition."""
        if place is None:
            topic, key = message[0], message[2]
            numbers = self._partitions.get(topic)
            if numbers is None:
                numbers = sorted(await self._producer.partitions_for(topic))
                self._partitions[topic] = numbers
            if key is None:
                self._without_key += 1
                index = self._without_key
            else:
                index = _hashed(key) & 0x7FFFFFFF
            place = (topic, numbers[index % len(numbers)])
        builder = self.builders.get(place)
        if builder is None:
            builder = self.builders[place] = self._producer.create_batch()
        return builder, place

    async def send(self, place: tuple[str, int]) -> None:
        """Hand the open batch of ``place`` to the producer, which may wait for the one before."""
        builder = self.builders.pop(place)
        builder.close()
        topic, partition = place
        self.futures.append(await self._producer.send_batch(builder, topic, partition=partition))


def explained(exc: Exception) -> str:
    """Return the text of an error of a producer, with the remedy if one is known."""
    text = described(exc)
    if isinstance(exc, (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)):
        return f"{text}: raise max.message.bytes of the topic, or lower max_batch_size in client="
    if isinstance(exc, errors.InvalidTimestampError):
        return f"{text}: raise message.timestamp.after.max.ms of the topic, or use timestamps=False"
    return text
