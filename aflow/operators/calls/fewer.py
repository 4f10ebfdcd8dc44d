"""Which operator an asynchronous step is: one that calls for each record, or one that calls less often."""

from __future__ import annotations

from aflow.machines.calls.settings import CallSettings
from aflow.operators.calls.cached import CachedOperator
from aflow.operators.calls.grouped import GroupedOperator
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.calls.plain import PlainOperator, is_plain


class CachedGroupsOperator(CachedOperator, GroupedOperator):
    """Records whose results are neither kept nor under way are called for together."""


def calling_operator(settings: CallSettings) -> AsyncOperator:
    """The operator of one subtask."""
    match settings.cache, settings.groups:
        case None, None:
            return PlainOperator(settings) if is_plain(settings) else AsyncOperator(settings)
        case _, None:
            return CachedOperator(settings)
        case None, _:
            return GroupedOperator(settings)
        case _:
            return CachedGroupsOperator(settings)
