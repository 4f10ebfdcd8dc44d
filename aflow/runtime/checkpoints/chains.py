"""What each step of a subtask has stored so far: the parts that a checkpoint of its points to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aflow.model.key_groups import KeyGroupRange
from aflow.state.manifest import FileRef, Link
from aflow.state.snapshot import OperatorSnapshot

#: Parts in a chain beyond which it is worth writing them anew as one: a restore reads all of them.
LONG: Final = 24


@dataclass(slots=True)
class Chain:
    """The parts of one step, oldest first, from a complete one on. Empty: the next one must be complete."""

    links: tuple[Link, ...] = ()
    #: Bytes of the first link and of those behind it, as far as they are this step's.
    base_bytes: int = 0
    change_bytes: int = 0

    @property
    def long(self) -> bool:
        """True if the chain should be written anew as one part."""
        return len(self.links) > LONG or (
            len(self.links) > 4 and self.change_bytes > self.base_bytes
        )


@dataclass(slots=True)
class SubtaskChains:
    """The chains of one subtask's steps."""

    groups: KeyGroupRange
    incremental: bool
    #: By step. A step that is not in it has stored nothing yet.
    chains: dict[str, Chain] = field(default_factory=dict[str, Chain])
    #: Counts how often something that was captured could not be stored: changes captured before that build on nothing.
    losses: int = 0

    def changes_do(self, step: str) -> bool:
        """True if it is enough to capture what has changed since the last capture."""
        return self.incremental and step in self.chains

    def adopt(self, step: str, links: Iterable[Link]) -> None:
        """Go on from the parts of the checkpoint that was restored."""
        found = tuple(links)
        if found:
            sizes = [link.file.size for link in found]
            self.chains[step] = Chain(found, sizes[0], sum(sizes[1:]))

    def stored(self, file: FileRef, snapshots: Mapping[str, OperatorSnapshot]) -> None:
        """A part is on disk."""
        link = Link(file, self.groups.start, self.groups.stop)
        for step, snapshot in snapshots.items():
            chain = self.chains.get(step)
            if snapshot.complete or chain is None:
                self.chains[step] = Chain((link,), file.size)
            else:
                chain.links = (*chain.links, link)
                chain.change_bytes += file.size

    def lost(self) -> None:
        """What was captured could not be stored, so nothing can be added to what there is."""
        self.losses += 1
        self.chains.clear()

    def compacted(self, step: str, former: Sequence[Link], file: FileRef) -> None:
        """``former``, the beginning of the chain, is one part now; the chain may have grown since, or begun anew."""
        chain = self.chains.get(step)
        if chain is None or chain.links[: len(former)] != tuple(former):
            return
        rest = chain.links[len(former) :]
        link = Link(file, self.groups.start, self.groups.stop)
        self.chains[step] = Chain((link, *rest), file.size, sum(one.file.size for one in rest))

    def now(self, steps: Iterable[str]) -> dict[str, tuple[Link, ...]]:
        """The chain of each of ``steps`` at this moment."""
        return {step: self.chains[step].links for step in steps}
