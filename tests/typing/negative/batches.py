"""Mistakes with batches. See ``test_negative.py`` for what the remarks mean."""

from __future__ import annotations

from aflow.model.batch import Batch


def misspelt(batch: Batch[int]) -> list[int]:
    return batch.valeus  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]


def of_another_type(batch: Batch[int]) -> list[str]:
    return batch.values  # error: mypy[return-value] pyright[reportReturnType]


def with_a_timestamp_that_is_text() -> Batch[int]:
    return Batch([1], timestamps=["noon"])  # error: mypy[list-item] pyright[reportArgumentType]
