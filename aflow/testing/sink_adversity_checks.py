"""The contract of sinks under adversity: lost connections, foreign committables, and secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from aflow.api.flow import Flow
from aflow.connect import Committable, Delivery, Sink, Writer
from aflow.errors import AflowError, RestoreError, SinkError, described, shown
from aflow.testing.disturbance import Disturb, cut, while_cut
from aflow.testing.secret_checks import Secrets
from aflow.testing.sink_probe import SinkProbe

S = TypeVar("S", bound=Sink[Any])

#: Committables of another sink, as a changed checkpoint may contain them.
_FOREIGN: Final[tuple[Committable, ...]] = (
    "../foreign",
    -17,
    ("foreign", 1),
    ["foreign", 2, [b""]],
    {"foreign": "output"},
)


class SinkAdversityCheck(Generic[S]):
    """Checks of a sink; see the top of the module."""

    def __init__(self, probe: SinkProbe[S], records: list[object]) -> None:
        self._probe = probe
        self._records = records

    async def refusing(self) -> None:
        """A transactional sink refuses committables that are not its own, and nothing is visible after that."""
        probe = self._probe
        sink = probe.make()
        for foreign in _FOREIGN:
            await self._refused(partial(probe.recover, sink, [foreign]), "recover()", foreign)
        await probe.recover(sink, [])
        async with probe.all_opened(sink, 1) as (writer,):
            for foreign in _FOREIGN:
                await self._refused(partial(probe.commit, writer, [foreign]), "commit()", foreign)
        await probe.expect(sink, [], "after committables of other sinks")

    async def _refused(
        self, call: Callable[[], Awaitable[None]], what: str, foreign: Committable
    ) -> None:
        try:
            await call()
        except (SinkError, RestoreError):
            return
        except AssertionError:
            raise
        except Exception as exc:
            raise self._probe.broken(
                f"{what} of {shown(foreign)}, which it has not prepared, fails with {described(exc)}; raise "
                f"SinkError or RestoreError with the reason"
            ) from exc
        raise self._probe.broken(
            f"{what} accepts {shown(foreign)}, which it has not prepared; raise SinkError or "
            f"RestoreError for it"
        )

    async def disturbed(self, disturb: Disturb) -> None:
        """While connections are cut, a writer waits; what is visible then is what its delivery promises."""
        probe = self._probe
        sink = probe.make()
        half = len(self._records) // 2
        try:
            await probe.recover(sink, [])
            async with probe.all_opened(sink, 1) as (writer,):
                for checkpoint, records in enumerate(
                    (self._records[:half], self._records[half:]), start=1
                ):
                    await self._write(writer, records, disturb)
                    await cut(disturb)
                    committables = await probe.prepare(writer, checkpoint)
                    await cut(disturb)
                    await while_cut(probe.commit(writer, committables), disturb)
                await cut(disturb)
                await probe.flush(writer)
        except AflowError as exc:
            raise probe.broken(
                f"with cut connections it fails ({exc}) instead of waiting and connecting again"
            ) from exc
        seen = await probe.seen(sink)
        if probe.delivery is Delivery.AT_LEAST_ONCE:
            # Records may have no hash.
            seen = [one for number, one in enumerate(seen) if one not in seen[:number]]
        if seen != self._records:
            raise probe.broken(
                f"while connections were cut, {shown(self._records)} was written, and {shown(seen)} is visible"
            )

    async def _write(self, writer: Writer[Any], records: list[object], disturb: Disturb) -> None:
        """Write ``records``; connections are cut before and meanwhile."""
        await cut(disturb)
        await while_cut(self._probe.write(writer, records), disturb)

    async def showing_nothing(self, secrets: Secrets) -> None:
        """Neither ``repr`` nor a plan, nor an error for a foreign committable shows a secret."""
        probe = self._probe
        sink = probe.make()
        secrets.check(probe.name, "repr() of the sink", sink)
        flow = Flow("check")
        flow.source([1], name="in").to(sink, name="out")
        secrets.check(probe.name, "the plan of a flow", flow.plan())
        for foreign in _FOREIGN:
            try:
                await probe.recover(sink, [foreign])
            except Exception as exc:
                secrets.check_error(probe.name, exc)
