"""Fixtures of the replay of flights through Kafka: those of its servers, and of the flights."""

from __future__ import annotations

from tests.connectors.postgres.conftest import database, postgres_server
from tests.examples.flights.conftest import data, first_flights, january

__all__ = ["data", "database", "first_flights", "january", "postgres_server"]
