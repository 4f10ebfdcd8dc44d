"""Error policies are checked when they are created."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.on_error import (
    DeadLetter,
    Drop,
    Fail,
    FailedCall,
    Fallback,
    check_on_error,
)
from aflow.model.tags import Tag
from tests.stable_ids import stable


def zero(value: int, error: BaseException) -> int:
    return 0


TAG = Tag[FailedCall[int]]("failed")


@pytest.mark.parametrize("policy", [Fail(), Drop(), DeadLetter(TAG), Fallback(zero)], ids=stable)
def test_there_are_four_policies(policy: object) -> None:
    check_on_error(policy)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Drop, r"on_error= takes Fail\(\).*Drop.*; call it: Fail\(\), Drop\(\)"),
        (
            "drop",
            r"on_error= takes Fail\(\), Drop\(\), DeadLetter\(tag\) or Fallback\(function\) of aflow.calls, not 'drop'",
        ),
        (None, "not None"),
    ],
    ids=str,
)
def test_what_is_none_of_them_is_refused(wrong: object, message: str) -> None:
    with pytest.raises(FlowDefinitionError, match=message):
        check_on_error(wrong)


def test_dead_letters_require_a_tag() -> None:
    with pytest.raises(FlowDefinitionError, match=r"DeadLetter takes an aflow\.Tag.*not 'failed'"):
        DeadLetter(cast("Any", "failed"))


def test_a_fallback_is_a_function_and_no_value() -> None:
    with pytest.raises(FlowDefinitionError, match=r"Fallback takes a function.*not 0"):
        Fallback(cast("Any", 0))
