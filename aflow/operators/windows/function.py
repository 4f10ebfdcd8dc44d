"""A function of windows written as a class: it sees the window, and has state for each key and each window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from aflow.model.tags import Tag
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.process import LifeCycle, check_kind
from aflow.state.specs import StateSpec, declared_states

K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)
V = TypeVar("V")
U = TypeVar("U")
S = TypeVar("S")
C = TypeVar("C")


class WindowContext(Protocol[K_co]):
    """What a ``WindowFunction`` sees beside the value. Good until the method returns."""

    @property
    def key(self) -> K_co: ...

    @property
    def window(self) -> TimeWindow: ...

    @property
    def firing(self) -> int:
        """Which result of this key and window this is, counted from 1; see ``Windowed.firing``."""
        ...

    @property
    def watermark(self) -> Timestamp:
        """How far event time has come (epoch ms)."""
        ...

    @property
    def processing_time(self) -> Timestamp:
        """What the clock says (epoch ms)."""
        ...

    def state(self, spec: StateSpec[C]) -> C:
        """The cell of a declaration, bound to the key: shared by all windows of it, and never cleared by itself."""
        ...

    def window_state(self, spec: StateSpec[C]) -> C:
        """The cell of a declaration, bound to key and window; cleared when the window goes.

        A window without end (``Global``, ``Count``) never goes, also where its contents are purged: there it stays.
        Raises ``FlowDefinitionError`` with windows that merge: which of the two states should stay?
        """
        ...

    def side(self, tag: Tag[S], value: S) -> None:
        """Send ``value`` to side output ``tag``, with the window's last timestamp."""
        ...


class WindowFunction(LifeCycle, Generic[K, V, U]):
    """Subclass it to make results ``U`` of what a window of key ``K`` holds.

    ``V`` is a ``list`` of the records in the order of their arrival, or behind an incremental function (``fold``,
    ``reduce``, ``aggregate``) its result. State is declared as class attributes, as in a ``KeyedProcess``.
    """

    @abstractmethod
    def process(self, value: V, ctx: WindowContext[K]) -> Iterable[U] | None:
        """The results of a firing: a list, a tuple, a generator (run to its end at once) or None for none.

        Results have the last timestamp of the window.
        """

    def on_clear(self, ctx: WindowContext[K]) -> None:
        """The window goes: forget what is kept elsewhere about it (its ``window_state`` goes by itself)."""
        return None


def check_window_function(function: object) -> None:
    """Refuse what cannot run as a ``WindowFunction``, and two states of one name. Raises ``FlowDefinitionError``."""
    check_kind(function, WindowFunction, handlers=("process", "on_clear", "open", "close"))
    declared_states(function)
