"""A consumer of a Redis group to Redis: without another consumer, each entry is added exactly once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from aflow_connectors.redis import RedisSource
from tests.connectors.pairs.pair import QUICK, Ends
from tests.connectors.pairs.redis_to_redis import RedisToRedis


class RedisGroupToRedis(RedisToRedis):
    """From three streams that a group reads to one."""

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        source = RedisSource(
            settings["redis"],
            re.compile(f"{settings['stream']}-in-."),
            group="readers",
            consumer="only",
            idle_after=None,
            reconnect=QUICK,
        )
        return replace(RedisToRedis.ends(settings), source=source)


PAIR = RedisGroupToRedis
