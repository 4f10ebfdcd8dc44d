"""The register of a storage in a bucket: one object that decides who owns it and which checkpoints are complete.

Theory. Object stores have no locks, and a process that is suspended at any instruction may send its next request
hours later. So everything that must not be done by two jobs is a compare-and-swap of one object: the register. It holds
the *epoch*, which grows with each claim, the holder, and the complete checkpoints with the epoch that wrote them.

- A claim replaces the holder and increments the epoch. From then on each swap by an earlier holder (a *zombie*) fails,
  since the register has another version. So a zombie completes and discards no checkpoint.
- All other objects have the epoch of their writer in their key, so two holders never write the same object.
- A holder renews its claim by swaps at intervals. A claim that is not renewed for the *lease*, as measured by the
  claimant's own clock, is taken over. The register has the lease of the holder, and the longer one of both applies. If
  its holder lives after all, it is a zombie: the lease decides how soon a job may be replaced, and correctness does not
  depend on it.

The answer to a swap may be lost. Then the register is read: if it has the new content, the swap took effect. A delayed
request cannot take effect after a later swap. Each content is unique (holder and sequence number), so equal ETags are
equal registers. References: C. Gray and D. Cheriton, "Leases", SOSP 1989; M. Kleppmann on fencing tokens (2016).

All methods block; those of ``RegisterClaim`` may be called by any thread.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from aflow.errors import CheckpointError, StorageTaken
from aflow.runtime.checkpoints.bucket.objects import (
    BucketError,
    CheckpointBucket,
    NoObject,
    Refused,
    Version,
)

REGISTER: Final = "register.json"
_FORMAT: Final = 1
#: Two files of Linux that tell which processes an id may refer to.
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")
#: Bytes of the largest register.
_SMALL: Final = 1 << 20
#: Attempts of a swap that is refused although the holder is the same.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that claimed a storage. ``token`` is unique for the claim."""

    token: str
    pid: int
    host: str
    boot_id: str = ""
    """Identifies the kernel and its start; empty if it is unknown."""
    pid_namespace: int = 0
    """Identifies the namespace that ``pid`` belongs to; 0 if it is unknown."""

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}"

    def is_dead(self) -> bool:
        """Return True if it is known that the process has ended: it ran in the PID namespace of this one.

        The name of the host does not tell: containers may share it, and each has process ids of its own.
        """
        boot_id, namespace = _process_space()
        if not boot_id or not namespace or self.pid == os.getpid():
            return False
        if (self.boot_id, self.pid_namespace) != (boot_id, namespace):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterState:
    """The content of the register."""

    flow: str
    epoch: int
    sequence: int
    holder: Holder | None
    #: The epoch that wrote the manifest, by complete checkpoint.
    checkpoints: Mapping[str, int] = field(default_factory=dict[str, int])
    #: Seconds for which the holder may not renew its claim; 0 if it is unknown.
    lease: float = 0.0
    format: int = _FORMAT

    def encoded(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @property
    def epochs(self) -> dict[int, int]:
        """The epoch of the manifest, by number of the checkpoint."""
        return {int(number): epoch for number, epoch in self.checkpoints.items()}


def read_register(bucket: CheckpointBucket) -> tuple[RegisterState, Version] | None:
    """Return the register; None if there is none. Raises ``BucketError`` and ``CheckpointError``."""
    try:
        data, version = bucket.read(REGISTER, limit=_SMALL)
    except NoObject:
        return None
    try:
        state = msgspec.json.decode(data, type=RegisterState)
        _ = state.epochs
    except (msgspec.MsgspecError, ValueError) as exc:
        raise CheckpointError(
            f"{bucket.shown(REGISTER)} is no register of checkpoints: {exc}"
        ) from exc
    if state.format > _FORMAT:
        raise CheckpointError(
            f"{bucket.shown(REGISTER)} has format {state.format}; this version reads formats up to {_FORMAT}: "
            f"upgrade aflow"
        )
    return state, version


class RegisterClaim:
    """The register as its holder sees it."""

    def __init__(self, bucket: CheckpointBucket, state: RegisterState, version: Version) -> None:
        self._bucket: Final = bucket
        self.state: RegisterState = state
        self._version: Version = version
        #: Held during a swap: the heartbeat has a thread of its own.
        self._swap: Final = Lock()
        #: True after a swap whose effect is unknown.
        self._doubtful = False

    @property
    def epoch(self) -> int:
        return self.state.epoch

    def change(self, changed: Callable[[RegisterState], RegisterState]) -> None:
        """Swap the register. Raises ``StorageTaken`` if another job has claimed it, otherwise ``CheckpointError``.

        After a ``CheckpointError`` the change may still take effect, until the next change.
        """
        with self._swap:
            self._change(changed)

    def _change(self, changed: Callable[[RegisterState], RegisterState]) -> None:
        reason = ""
        for _ in range(_ATTEMPTS):
            if self._doubtful:
                self._read_again(reason)
            wanted = replace(changed(self.state), sequence=self.state.sequence + 1)
            try:
                version = self._bucket.replace(REGISTER, wanted.encoded(), self._version)
            except BucketError as exc:
                reason = str(exc)
                self._doubtful = True
                self._read_again(reason)
                if self.state == wanted:
                    return
                if not isinstance(exc, Refused):
                    # Not repeated at once: the delayed request may take effect meanwhile, which the next change finds.
                    self._doubtful = True
                    raise self._error(reason) from exc
            else:
                self.state, self._version = wanted, version
                return
        raise self._error(reason)

    def _read_again(self, reason: str) -> None:
        try:
            found = read_register(self._bucket)
        except BucketError as exc:
            raise self._error(reason or str(exc)) from exc
        mine = self.state.holder
        holder = None if found is None else found[0].holder
        if found is None or holder != mine or found[0].epoch != self.state.epoch:
            by = f" ({holder})" if holder is not None else ""
            raise StorageTaken(
                f"another job{by} has taken over {self._bucket.url}: this one can complete no checkpoint any more. "
                f"Stop one of them, or give each a prefix of its own"
            )
        self.state, self._version = found
        self._doubtful = False

    def _error(self, reason: str) -> CheckpointError:
        return CheckpointError(f"cannot write {self._bucket.shown(REGISTER)}: {reason}")

    def renew(self) -> None:
        self.change(lambda state: state)

    def release(self) -> None:
        """Give the claim back. Raises as ``change``."""
        self.change(lambda state: replace(state, holder=None))


def _process_space() -> tuple[str, int]:
    """Return the boot id and the inode of the PID namespace of this process; empty and 0 if there is no ``/proc``."""
    try:
        return _BOOT_ID.read_text("ascii").strip(), _PID_NAMESPACE.stat().st_ino
    except (OSError, ValueError):
        return "", 0


def new_holder() -> Holder:
    return Holder(secrets.token_hex(8), os.getpid(), socket.gethostname(), *_process_space())


def try_claim(
    bucket: CheckpointBucket, flow: str, seen: tuple[RegisterState, Version] | None, lease: float
) -> RegisterClaim | None:
    """Claim the storage whose register is ``seen``; None if it has changed. Raises ``CheckpointError``.

    ``lease`` is in seconds.
    """
    holder = new_holder()
    if seen is None:
        state = RegisterState(flow=flow, epoch=1, sequence=1, holder=holder, lease=lease)
    else:
        state = replace(
            seen[0],
            epoch=seen[0].epoch + 1,
            sequence=seen[0].sequence + 1,
            holder=holder,
            lease=lease,
        )
    try:
        if seen is None:
            return RegisterClaim(bucket, state, bucket.create(REGISTER, state.encoded()))
        return RegisterClaim(bucket, state, bucket.replace(REGISTER, state.encoded(), seen[1]))
    except BucketError as exc:
        # The answer to the request, or to an earlier attempt of it, may be lost.
        try:
            found = read_register(bucket)
        except BucketError:
            found = None
        if found is not None and found[0] == state:
            return RegisterClaim(bucket, *found)
        if isinstance(exc, Refused):
            return None
        raise CheckpointError(f"cannot write {bucket.shown(REGISTER)}: {exc}") from exc


def check_conditions(bucket: CheckpointBucket) -> None:
    """Raise ``CheckpointError`` unless the store refuses conditional writes whose condition is not met.

    A server that ignores the conditions would let two jobs write into one storage.
    """
    key = f"probe-{secrets.token_hex(8)}"
    try:
        version = bucket.create(key, b"1")
        other = {**version, "e_tag": '"0123456789abcdef"'}
        refused = _is_refused(partial(bucket.create, key, b"2"))
        refused &= _is_refused(partial(bucket.replace, key, b"3", other))
        bucket.delete([key])
    except BucketError as exc:
        raise CheckpointError(f"cannot write {bucket.shown(key)}: {exc}") from exc
    if not refused:
        raise CheckpointError(
            f"the server of {bucket.url} ignores the conditions of conditional writes (If-None-Match, If-Match), "
            f"without which two jobs could write into one storage: use a store that supports them"
        )


def _is_refused(write: Callable[[], Version]) -> bool:
    try:
        write()
    except Refused:
        return True
    return False
