"""The stored parts of the steps of a subtask, to which its checkpoints refer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aflow.model.key_groups import KeyGroupRange
from aflow.state.manifest import FileRef, Link
from aflow.state.snapshot import OperatorSnapshot

#: Chains with more parts are compacted to one part: a restore reads all of them.
LONG: Final = 24


@dataclass(slots=True)
class PartChain:
    """The parts of one step, oldest first, starting with a complete one. If empty, the next one must be complete."""

    links: tuple[Link, ...] = ()
    #: Bytes of the first link and of the following ones, in their shares of this step.
    base_bytes: int = 0
    change_bytes: int = 0

    @classmethod
    def of(cls, links: Iterable[Link]) -> PartChain:
        """Return the chain of stored parts."""
        found = tuple(links)
        first, *later = [link.file.size for link in found] or [0]
        return cls(found, first, sum(later))

    @property
    def long(self) -> bool:
        """True if the chain should be compacted."""
        return len(self.links) > LONG or (
            len(self.links) > 4 and self.change_bytes > self.base_bytes
        )


@dataclass(slots=True)
class SubtaskChains:
    """The chains of the steps of one subtask."""

    groups: KeyGroupRange
    incremental: bool
    #: By step. A step that is missing has stored nothing yet.
    chains: dict[str, PartChain] = field(default_factory=dict[str, PartChain])
    #: Counts captures that could not be stored: changes that were captured before a loss have no base.
    losses: int = 0

    def changes_do(self, step: str) -> bool:
        """Return True if a capture of the changes since the last one suffices."""
        return self.incremental and step in self.chains

    def adopt(self, step: str, links: Iterable[Link]) -> None:
        """Continue the chain of the restored checkpoint."""
        chain = PartChain.of(links)
        if chain.links:
            self.chains[step] = chain

    def stored(self, file: FileRef, snapshots: Mapping[str, OperatorSnapshot]) -> None:
        """Add a part that is stored durably."""
        link = Link(file, self.groups.start, self.groups.stop)
        for step, snapshot in snapshots.items():
            chain = self.chains.get(step)
            if snapshot.complete or chain is None:
                self.chains[step] = PartChain((link,), file.size)
            else:
                chain.links = (*chain.links, link)
                chain.change_bytes += file.size

    def lost(self) -> None:
        """Clear all chains: a capture could not be stored, so changes have no base."""
        self.losses += 1
        self.chains.clear()

    def compacted(self, step: str, former: Sequence[Link], file: FileRef) -> None:
        """Replace ``former``, the beginning of the chain, by one part; the chain may have grown since, or started
        anew."""
        chain = self.chains.get(step)
        if chain is None or chain.links[: len(former)] != tuple(former):
            return
        rest = chain.links[len(former) :]
        link = Link(file, self.groups.start, self.groups.stop)
        self.chains[step] = PartChain((link, *rest), file.size, sum(one.file.size for one in rest))

    def now(self, steps: Iterable[str]) -> dict[str, tuple[Link, ...]]:
        """Return the present chain of each of ``steps``."""
        return {step: self.chains[step].links for step in steps}
