"""Mistakes with state. See ``test_negative.py`` for what the remarks mean."""

from __future__ import annotations

from aflow.operators.context import Context
from aflow.state.specs import MapState, ValueState

LAST = ValueState("last", of=str)
SHOPS = MapState("by shop", key=str, of=int)


def without_the_case_of_none(ctx: Context[str]) -> str:
    return ctx.state(LAST).get()  # error: mypy[return-value] pyright[reportReturnType]


def of_another_type(ctx: Context[str]) -> None:
    ctx.state(LAST).set(5)  # error: mypy[arg-type] pyright[reportArgumentType]


def with_key_and_value_mixed_up(ctx: Context[str]) -> None:
    ctx.state(SHOPS).put("x", "y")  # error: mypy[arg-type] pyright[reportArgumentType]


def misspelt(ctx: Context[str]) -> None:
    ctx.state(LAST).put("x")  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]


def with_a_key_of_another_type(ctx: Context[str]) -> int:
    return ctx.key  # error: mypy[return-value] pyright[reportReturnType]
