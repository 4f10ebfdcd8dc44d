"""Tables of delays in PostgreSQL: one row for each hour of an airport, and for each day of a carrier."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

import aflow as af
from aflow_connectors.postgres import PostgresUpsert
from flights.delays import AirportHour, CarrierDay, Delays

# asyncpg has no complete types.
asyncpg: Any = import_module("asyncpg")

_TABLES: Final = """
DROP TABLE IF EXISTS airport_hours, carrier_days;
CREATE TABLE airport_hours (
    airport text, hour timestamptz, flights int NOT NULL, mean float8 NOT NULL, longest int NOT NULL,
    PRIMARY KEY (airport, hour)
);
CREATE TABLE carrier_days (
    carrier text, day date, flights int NOT NULL, mean float8 NOT NULL, longest int NOT NULL,
    PRIMARY KEY (carrier, day)
);
"""


async def make_tables(database: str) -> None:
    """Make both tables anew. Raises ``SinkError`` if the database cannot be reached or refuses."""
    async with _connected(database) as connection:
        await connection.execute(_TABLES)


def hours_sink(database: str) -> PostgresUpsert[AirportHour]:
    """Return the sink of the hours. Rows of a checkpoint become visible together, exactly once."""
    return PostgresUpsert(
        database,
        "airport_hours",
        key=("airport", "hour"),
        row=lambda one: {"airport": one.airport, "hour": one.hour, **_columns(one.delays)},
        exactly_once=True,
    )


def days_sink(database: str) -> PostgresUpsert[CarrierDay]:
    """Return the sink of the days, as that of the hours."""
    return PostgresUpsert(
        database,
        "carrier_days",
        key=("carrier", "day"),
        row=lambda one: {"carrier": one.carrier, "day": one.day, **_columns(one.delays)},
        exactly_once=True,
    )


async def hours(database: str) -> list[AirportHour]:
    """Return all hours in the database."""
    async with _connected(database) as connection:
        found = await connection.fetch("SELECT * FROM airport_hours ORDER BY hour, airport")
    return [AirportHour(row["airport"], row["hour"], _delays(row)) for row in found]


async def days(database: str) -> list[CarrierDay]:
    """Return all days in the database."""
    async with _connected(database) as connection:
        found = await connection.fetch("SELECT * FROM carrier_days ORDER BY day, carrier")
    return [CarrierDay(row["carrier"], row["day"], _delays(row)) for row in found]


def _columns(delays: Delays) -> dict[str, Any]:
    return {"flights": delays.flights, "mean": delays.mean, "longest": delays.longest}


def _delays(row: Any) -> Delays:
    return Delays(row["flights"], row["mean"], row["longest"])


@asynccontextmanager
async def _connected(database: str) -> AsyncGenerator[Any]:
    """Connect to the database. The address may contain a password, so no message has it."""
    try:
        connection = await asyncpg.connect(database)
    except (OSError, ValueError, TimeoutError, asyncpg.PostgresError) as exc:
        raise af.errors.SinkError(
            f"cannot connect to PostgreSQL: {exc}; --postgres names another database"
        ) from exc
    try:
        yield connection
    except asyncpg.PostgresError as exc:
        raise af.errors.SinkError(f"PostgreSQL: {exc}") from exc
    finally:
        await connection.close()
