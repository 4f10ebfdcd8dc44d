"""Objects to a Delta table and to objects, each result exactly once. The checkpoints are in the bucket, too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from obstore.store import from_url

from aflow_connectors.delta import DeltaSink
from aflow_connectors.s3 import JsonLinesObjects, JsonLinesObjectSink, ObjectStorage
from tests.connectors.pairs.pair import Ends, Output, Pair, Result, result_of
from tests.connectors.pairs.proxies import ThreadedProxy
from tests.connectors.s3.server import S3Server

#: They have no types.
pa: Any = import_module("pyarrow")
lake: Any = import_module("deltalake")

_SCHEMA: Final = pa.schema([("key", pa.int64()), ("start", pa.int64()), ("sum", pa.int64())])

#: Numbers in an object.
_IN_OBJECT: Final = 250
#: Objects are read at the same time, each by one subtask.
_DISORDER: Final = timedelta(milliseconds=4 * _IN_OBJECT)


class Outage:
    """A server that refuses connections instead of a killed one: moto keeps its data in memory."""

    def __init__(self, proxy: ThreadedProxy) -> None:
        self._proxy = proxy

    def kill(self) -> None:
        self._proxy.refuse()

    def start(self) -> None:
        self._proxy.accept()


def _client(server: S3Server) -> dict[str, str]:
    """Return settings of deltalake for ``server``."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": server.secret,
        "AWS_ALLOW_HTTP": "true",
        "conditional_put": "etag",
    }


class S3ToDelta(Pair):
    """From objects that appear one after the other."""

    def prepare(self) -> None:
        self._server = self.servers.s3
        host, port = self._server.endpoint.removeprefix("http://").split(":")
        via = self.proxied(host, int(port))
        self._url = self.settings["url"] = self._server.url(self.folder.name)
        self.settings["endpoint"] = f"http://{via[0]}:{via[1]}"
        self.killable.append(Outage(self.proxies[-1]))
        options: Any = {**self._server.client, "client_options": {"allow_http": True}}
        self._bucket: Any = from_url(f"s3://{self._server.bucket}", **options)
        self._prefix = self._url.removeprefix(f"s3://{self._server.bucket}/")

    def feed(self, numbers: range) -> None:
        for first in numbers[::_IN_OBJECT]:
            part = range(first, min(first + _IN_OBJECT, numbers.stop))
            lines = "".join(f"{number}\n" for number in part).encode()
            self._bucket.put(f"{self._prefix}/in/{first:09}.jsonl", lines)

    @property
    def outputs(self) -> Sequence[Output]:
        return [Output("table", self._in_table), Output("objects", self._in_objects)]

    def _in_table(self) -> list[Result]:
        options = _client(self._server)
        if not lake.DeltaTable.is_deltatable(f"{self._url}/table", storage_options=options):
            return []
        table = lake.DeltaTable(f"{self._url}/table", storage_options=options)
        return [result_of(row) for row in table.to_pyarrow_table().to_pylist()]

    def _in_objects(self) -> list[Result]:
        folder = f"{self._prefix}/out/"
        keys = [one["path"] for page in self._bucket.list(folder) for one in page]
        return [
            result_of(json.loads(line))
            for key in keys
            if "/" not in key.removeprefix(folder)
            for line in bytes(self._bucket.get(key).bytes()).splitlines()
        ]

    @staticmethod
    def ends(settings: Mapping[str, str]) -> Ends:
        server, url = S3Server(settings["endpoint"]), settings["url"]
        source = JsonLinesObjects(
            f"{url}/in/",
            of=int,
            discover_every=timedelta(milliseconds=100),
            client=server.client,
        )
        sinks: dict[str, Any] = {
            "table": DeltaSink(f"{url}/table", schema=_SCHEMA, client=_client(server)),
            "objects": JsonLinesObjectSink(f"{url}/out", client=server.client),
        }
        storage = ObjectStorage(f"{url}/state", client=server.client)
        # The client repeats a request for less than a second if connections are refused. Then the job fails.
        return Ends(source, sinks, max_delay=_DISORDER, restarts=1000, storage=storage)


PAIR = S3ToDelta
