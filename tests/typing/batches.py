"""Inferred types of batches. Nothing here runs: `make types` checks it."""

from __future__ import annotations

from typing import assert_type

from aflow.model.batch import Batch


def a_batch_knows_the_type_of_its_values() -> None:
    assert_type(Batch([1, 2]), Batch[int])
    assert_type(Batch(["a"], timestamps=[1]).values, list[str])


def a_slice_of_a_batch_is_a_batch_of_the_same_type(batch: Batch[str]) -> None:
    assert_type(batch.slice(0, 1), Batch[str])
