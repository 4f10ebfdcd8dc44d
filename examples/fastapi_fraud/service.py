"""The web application: its handlers, and the job that lives in it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final
from zlib import crc32

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Path, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest
from pydantic import BaseModel, ConfigDict, Field

import aflow as af
import aflow.web
from fastapi_fraud.payments import Card, Decision, Payment
from fastapi_fraud.pipeline import CARD, DECIDE, Pipeline
from fastapi_fraud.settings import Settings, from_environment

#: The furthest time of a payment in the future: one such time would make all others late.
_FUTURE_MS: Final = 60_000
#: The furthest in the past: decisions of older payments may be forgotten, so a repeated one could be decided twice.
_PAST_MS: Final = 600_000

_log = logging.getLogger("fastapi_fraud")


class Body(BaseModel):
    """The body of a payment."""

    model_config = ConfigDict(extra="forbid", strict=True)

    merchant: str = Field(min_length=1, max_length=100)
    cents: int = Field(gt=0, le=100_000_000)
    at: int | None = Field(default=None, gt=0, description="epoch ms; default: now")


@dataclass(slots=True)
class Service:
    """One shard, and the job that runs."""

    settings: Settings
    pipeline: Pipeline
    answers: Counter
    registry: CollectorRegistry
    job: af.Job | None = None

    def jobs(self) -> list[af.Job]:
        return [] if self.job is None else [self.job]

    @property
    def running(self) -> af.Job:
        """The job. Raises ``JobStopped`` before its start."""
        if self.job is None:
            raise af.JobStopped("the service has not started yet")
        return self.job


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Running = Annotated[Service, Depends(_service)]


async def _own_card(
    card: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")], service: Running
) -> str:
    """Return the card of the path. Refuses one of another shard: its other payments are there."""
    shard = shard_of(card, service.settings.shards)
    if shard != service.settings.shard:
        raise HTTPException(
            421, f"card {card!r} belongs to shard {shard}; route its requests there"
        )
    return card


OwnCard = Annotated[str, Depends(_own_card)]
#: Printable, and together with a card no longer than the id of a record may be.
Key = Annotated[str, Header(alias="Idempotency-Key", pattern=r"^[!-~][ -~]{0,127}$")]


def shard_of(card: str, shards: int) -> int:
    """Return the shard of a card, the same in each process."""
    return crc32(card.encode()) % shards


router = APIRouter()


async def _payment(card: OwnCard, key: Key, body: Body) -> Payment:
    now = time.time_ns() // 1_000_000
    at = now if body.at is None else body.at
    if not now - _PAST_MS <= at <= now + _FUTURE_MS:
        raise HTTPException(
            422,
            f"at={at} is not between {_PAST_MS // 1000} s before and {_FUTURE_MS // 1000} s after the clock of the "
            f"service, {now} (epoch ms)",
        )
    return Payment(card, key, body.merchant, body.cents, at)


Sent = Annotated[Payment, Depends(_payment)]


@router.post("/cards/{card}/payments", status_code=202)
async def accept(payment: Sent, service: Running) -> Response:
    """Answer 202 when the payment is on disk; its decision is written later."""
    await service.pipeline.payments.send(payment, id=f"{payment.card} {payment.id}")
    service.answers.labels("accepted").inc()
    return Response(status_code=202)


@router.post("/cards/{card}/decisions")
async def decide(payment: Sent, service: Running) -> Decision:
    """Answer with the decision for the payment; the same one if it was sent before."""
    timeout = timedelta(seconds=service.settings.ask_seconds)
    decision: Decision = await service.running.ask(
        service.pipeline.payments, payment, timeout=timeout
    )
    service.answers.labels(decision.verdict.value).inc()
    return decision


@router.get("/cards/{card}")
async def show(card: OwnCard, service: Running) -> Card:
    """Answer with what is remembered of a card, from the state of the running job."""
    found: Card | None = await service.running.state(DECIDE, CARD).get(card)
    if found is None:
        raise HTTPException(404, f"no payment of card {card!r} was decided")
    return found


@router.get("/health")
async def health(service: Running) -> Response:
    """Answer 200 only while payments are processed; they are accepted at other times, too."""
    status = None if service.job is None else service.job.status
    is_healthy = status is af.metrics.JobStatus.RUNNING
    content = {"status": "created" if status is None else status.value}
    return JSONResponse(content, 200 if is_healthy else 503)


@router.get("/metrics")
async def metrics(service: Running) -> Response:
    """Answer with the metrics of the job and of the handlers, for Prometheus."""
    return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application; ``uvicorn --factory fastapi_fraud.service:create_app`` serves it."""
    settings = from_environment() if settings is None else settings
    registry = CollectorRegistry()
    answers = Counter("fraud_answers", "Answered payments", ["answer"], registry=registry)
    service = Service(settings, Pipeline(settings), answers, registry)
    registry.register(aflow.web.JobCollector(service.jobs))
    app = FastAPI(title="Payments", lifespan=_lifespan)
    app.state.service = service
    app.include_router(router)
    app.mount(
        "/aflow",
        aflow.web.app(
            service.jobs, token=settings.token or None, read_token=settings.read_token or None
        ),
    )
    for error, answer in (
        (af.errors.SourceFull, _full),
        (af.errors.SourceError, _unavailable),
        (af.JobStopped, _unavailable),
        (TimeoutError, _too_late),
        (af.errors.NoResult, _no_decision),
    ):
        app.add_exception_handler(error, answer)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Run the job while requests are served. A second process on the same folder fails here."""
    service: Service = app.state.service
    pipeline = service.pipeline
    restart = af.restart.ExponentialDelay(initial=timedelta(milliseconds=100))
    async with pipeline.payments:
        pipeline.prepare()
        flow = pipeline.flow()
        async with flow.start(checkpointing=pipeline.checkpointing, restart=restart) as job:
            service.job = job
            yield
            try:
                await job.stop(deadline=timedelta(seconds=service.settings.stop_seconds))
            except af.errors.StopTimeout as left:
                _log.warning("the next start continues with what is left: %s", left)


async def _full(request: Request, error: Exception) -> Response:
    """Answer that the payment is not in the log."""
    return _failed(request, 503, "full", str(error), accepted=False)


async def _unavailable(request: Request, error: Exception) -> Response:
    """Answer that nothing is known of the payment: the job or the disk has failed meanwhile."""
    return _failed(request, 503, "unavailable", str(error))


async def _too_late(request: Request, _: Exception) -> Response:
    """Answer that the decision takes longer."""
    return _failed(
        request, 504, "timeout", "there is no decision in time; ask again with the same key"
    )


async def _no_decision(request: Request, _: Exception) -> Response:
    """Answer that the payment is in the folder ``unscored``."""
    message = "the risk service has no score for this payment; it is kept in the folder 'unscored'"
    return _failed(request, 502, "unscored", message, accepted=True)


def _failed(
    request: Request, status: int, answer: str, message: str, *, accepted: bool | None = None
) -> Response:
    """Answer with a reason, and whether the payment was accepted; None: unknown."""
    service: Service = request.app.state.service
    service.answers.labels(answer).inc()
    headers = {} if accepted else {"Retry-After": "1"}
    return JSONResponse({"detail": message, "accepted": accepted}, status, headers)
