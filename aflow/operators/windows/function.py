"""Window functions written as classes, with the window in their context, and state by key and by window."""

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
    """The context of a ``WindowFunction``. It is valid until the method returns."""

    @property
    def key(self) -> K_co: ...

    @property
    def window(self) -> TimeWindow: ...

    @property
    def firing(self) -> int:
        """Return the number of this firing for the key and window, counted from 1; see ``Windowed.firing``."""
        ...

    @property
    def watermark(self) -> Timestamp:
        """Return the current watermark (epoch ms)."""
        ...

    @property
    def processing_time(self) -> Timestamp:
        """Return the current time of the clock (epoch ms)."""
        ...

    def state(self, spec: StateSpec[C]) -> C:
        """Return the cell of a declared state for the key, shared by all its windows and never
        cleared automatically.
        """
        ...

    def window_state(self, spec: StateSpec[C]) -> C:
        """Return the cell of a declared state for key and window, cleared with the window.

        A window without end (``Global``, ``Count``) is never cleaned up, so its state is kept, also when contents are
        purged. Raises ``FlowDefinitionError`` with windows that merge: their states could not be merged.
        """
        ...

    def side(self, tag: Tag[S], value: S) -> None:
        """Emit ``value`` to side output ``tag``, with the window's last timestamp."""
        ...


class WindowFunction(LifeCycle, Generic[K, V, U]):
    """Base of functions that turn the contents of a window of key ``K`` into results ``U``.

    ``V`` is a ``list`` of the records in the order of arrival, or the result of an incremental function (``fold``,
    ``reduce``, ``aggregate``). State is declared as class attributes, as in a ``KeyedProcess``.
    """

    @abstractmethod
    def process(self, value: V, ctx: WindowContext[K]) -> Iterable[U] | None:
        """Return the results of a firing: a list, a tuple, a generator (consumed at once), or None for no results.

        Results have the last timestamp of the window.
        """

    def on_clear(self, ctx: WindowContext[K]) -> None:
        """Release what is kept elsewhere for the window, which is cleaned up; its ``window_state`` is cleared
        automatically.
        """
        return None


def check_window_function(function: object) -> None:
    """Raise ``FlowDefinitionError`` for an object that is no usable ``WindowFunction``, and for two
    states of one name.
    """
    check_kind(function, WindowFunction, handlers=("process", "on_clear", "open", "close"))
    declared_states(function)
