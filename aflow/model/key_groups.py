"""Key groups: keyed state is divided into a fixed number of groups, and each subtask owns a contiguous range of them.

With ``G`` key groups and ``P`` subtasks, subtask ``i`` owns the groups from ``ceil(i * G / P)`` up to, not including,
``ceil((i + 1) * G / P)``; group ``g`` is therefore owned by subtask ``g * P // G``. Sizes differ by at most one. This
is Flink's division. A savepoint can be restored with another parallelism because groups move whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from aflow.errors import FlowDefinitionError
from aflow.model.keys import stable_hash

__all__ = ["DEFAULT_KEY_GROUPS", "KeyGroupRange", "key_group", "ranges", "subtask_of"]

#: The number of key groups is fixed for the life of a pipeline's state, and bounds its parallelism.
DEFAULT_KEY_GROUPS: Final = 128

#: Maximum of key groups: more cost more memory than any parallelism is worth.
MOST_KEY_GROUPS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups from ``start`` (inclusive) to ``stop`` (exclusive); ``group in range`` asks for one."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise FlowDefinitionError(
                f"a range of key groups needs 0 <= start <= stop, not {self.start} and {self.stop}"
            )

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.start <= group < self.stop

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def __len__(self) -> int:
        return self.stop - self.start


def key_group(key: Hashable, count: int = DEFAULT_KEY_GROUPS) -> int:
    """Return the group of ``key`` among ``count``: its stable hash modulo ``count``. Raises ``UnsupportedKey``."""
    if count < 1:
        raise FlowDefinitionError(f"the number of key groups must be at least 1, not {count}")
    return stable_hash(key) % count


def ranges(key_groups: int, parallelism: int) -> list[KeyGroupRange]:
    """Return the range of each subtask, in order; together they cover every group once and none is empty.

    Raises ``FlowDefinitionError`` unless ``1 <= parallelism <= key_groups``.
    """
    _check(key_groups, parallelism)
    starts = [-(-subtask * key_groups // parallelism) for subtask in range(parallelism + 1)]
    return [KeyGroupRange(start, stop) for start, stop in pairwise(starts)]


def subtask_of(group: int, key_groups: int, parallelism: int) -> int:
    """Return the index of the subtask that owns ``group``.

    Raises ``FlowDefinitionError`` for a group outside ``0 .. key_groups - 1``, and as ``ranges`` does.
    """
    _check(key_groups, parallelism)
    if not 0 <= group < key_groups:
        raise FlowDefinitionError(
            f"key group {group} is not among the {key_groups} groups 0 to {key_groups - 1}"
        )
    return group * parallelism // key_groups


def _check(key_groups: int, parallelism: int) -> None:
    if key_groups < 1:
        raise FlowDefinitionError(f"key_groups must be at least 1, not {key_groups}")
    if parallelism < 1:
        raise FlowDefinitionError(f"parallelism must be at least 1, not {parallelism}")
    if parallelism > key_groups:
        raise FlowDefinitionError(
            f"parallelism {parallelism} is more than the {key_groups} key groups, so some subtasks would own none; "
            f"lower it, or start without old state and with more key groups"
        )
