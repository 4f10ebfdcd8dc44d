"""The harness of asynchronous steps: the test is their slots, and says which call gives what, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from aflow.machines.calls.call import Call
from aflow.machines.calls.settings import CallSettings
from aflow.operators.base import Operator
from aflow.operators.calls.operator import AsyncOperator
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import Mode, OperatorHarness


def unused(value: Any) -> Awaitable[Any]:
    """Stands for the function of the step: nothing awaits it here."""
    raise AssertionError(f"called for {value!r}")


class SlotsHarness(OperatorHarness[Any, Any]):
    """Makes all calls that may begin, after each step; what is settled leaves at once unless ``mails_wait``."""

    def __init__(
        self,
        *,
        key: Callable[[Any], Hashable] | None = None,
        mode: Mode = Mode.STRAIGHT,
        subtask: int = 0,
        parallelism: int = 1,
        **settings: Any,
    ) -> None:
        #: The calls that were begun and have given nothing yet, in the order in which they began.
        self.under_way: list[Call] = []
        #: The values of all calls, in the order in which they began.
        self.made: list[Any] = []
        self.cancelled: list[Any] = []
        #: True to have what is settled stay until ``emit``.
        self.mails_wait = False
        #: Told when an operator goes on from a snapshot of another one.
        self.on_replaced: Callable[[], None] = lambda: None
        self._told = False
        made = CallSettings(call=unused, **settings)
        super().__init__(
            lambda: AsyncOperator(made),
            key=key,
            mode=mode,
            subtask=subtask,
            parallelism=parallelism,
        )

    @property
    def step(self) -> AsyncOperator:
        assert isinstance(self.operator, AsyncOperator)
        return self.operator

    @property
    def asked(self) -> list[Any]:
        """The values of the calls that are under way."""
        return [call.value for call in self.under_way]

    # ---------------------------------------------------------------------------------- what happens

    def returns(self, value: object, result: object) -> None:
        """The oldest call for ``value`` gives ``result``."""
        call = self._no_longer(value)
        self._step(lambda: self.step.returned(call, result))

    def raises(self, value: object, error: BaseException) -> None:
        """The oldest call for ``value`` fails."""
        call = self._no_longer(value)
        self._step(lambda: self.step.raised(call, error))

    def emit(self) -> None:
        """The mail runs."""
        while self._told:
            self._told = False
            self.step.emit()

    def restore(self, *snapshots: OperatorSnapshot) -> None:
        super().restore(*snapshots)
        self._start()

    # ----------------------------------------------------------------------------------- the runtime

    def _new(self) -> Operator:
        operator = super()._new()
        assert isinstance(operator, AsyncOperator)
        self.under_way = []
        self._told = False
        operator.on_settled = self._note
        operator.on_cancel = self._cancel
        return operator

    def _replace(self, snapshot: OperatorSnapshot | None) -> None:
        super()._replace(snapshot)
        self.on_replaced()
        self._start()

    def _start(self) -> None:
        self.step.on_start()
        if not self.mails_wait:
            self.emit()
        self._take_calls()

    def _stepped(self) -> None:
        if not self.mails_wait:
            self.emit()
        super()._stepped()
        self._take_calls()
        if not self.mails_wait:
            self.emit()  # records whose deadline had passed were settled when they were asked for

    def _take_calls(self) -> None:
        while (call := self.step.take()) is not None:
            self.under_way.append(call)
            self.made.append(call.value)

    def _no_longer(self, value: object) -> Call:
        call = next(call for call in self.under_way if call.value == value)
        self.under_way.remove(call)
        return call

    def _note(self) -> None:
        self._told = True

    def _cancel(self, call: Call) -> None:
        self.under_way.remove(call)
        self.cancelled.append(call.value)
