"""The web application: its handlers, and the job that lives in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Annotated

import msgspec
from aiohttp import web

import aflow as af
from aiohttp_ingest.pipeline import TOTALS, Ingest, Payment, Total


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /payments``.

    A payment that is accepted is processed again after each restart. So what the flow cannot process must be refused
    here: without limits, the sum of two payments may be too large for JSON.
    """

    card: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    cents: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)]


_read_body = msgspec.json.Decoder(Body).decode


class Service:
    """Accepts payments, and answers with the totals of cards."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    def application(self) -> web.Application:
        application = web.Application()
        application.cleanup_ctx.append(self._job)
        application.add_routes(
            [
                web.post("/payments", self.post_payment),
                web.get("/cards/{card}", self.get_card),
                web.get("/health", self.get_health),
            ]
        )
        return application

    async def _job(self, application: web.Application) -> AsyncGenerator[None]:
        restart = af.restart.ExponentialDelay(initial=timedelta(milliseconds=100))
        flow = self._ingest.flow()
        async with flow.start(checkpointing=self._ingest.checkpointing, restart=restart) as job:
            self._running = job
            yield

    async def post_payment(self, request: web.Request) -> web.Response:
        """Answer when the payment is on disk."""
        order = request.headers.get("Idempotency-Key", "")
        try:
            body = _read_body(await request.read())
            payment = Payment(order, body.card, body.cents)
            await self._ingest.payments.send(payment, id=order)
        except (msgspec.MsgspecError, UnicodeDecodeError, af.FlowDefinitionError) as invalid:
            return web.json_response({"error": str(invalid)}, status=400)
        except (af.errors.SourceFull, af.errors.SourceError, af.JobStopped) as unavailable:
            return web.json_response({"error": str(unavailable)}, status=503)
        return web.Response(status=202)

    async def get_card(self, request: web.Request) -> web.Response:
        """Return the total of a card, from the state of the running job."""
        card = request.match_info["card"]
        try:
            total: Total | None = await self._running.state(TOTALS).get(card)
        except af.JobStopped as unavailable:
            return web.json_response({"error": str(unavailable)}, status=503)
        return web.json_response({"card": card, "cents": 0 if total is None else total.cents})

    async def get_health(self, request: web.Request) -> web.Response:
        """Answer 200 only while payments are processed; they are accepted at other times, too."""
        status = self._running.status
        healthy = status is af.metrics.JobStatus.RUNNING
        return web.json_response({"status": status.value}, status=200 if healthy else 503)
