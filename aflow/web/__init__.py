"""Jobs over HTTP: a page for people, health, metrics for Prometheus, a JSON API to read and control them, and records
for a durable push source.

Here: the application (``routes`` is its core, without a web framework), its adapters for ASGI and aiohttp, a server for
programs that have none, and a collector for registries of Prometheus. The page is in ``static/``, plain files without a
build step; ``events`` feeds it. ``ingest`` accepts records. Not here: the metrics themselves, which ``Job.metrics()``
has, users and sessions, TLS. Read ``routes.py`` first, then ``collector.py`` and ``events.py``.

Needs the extra ``web``. ``aflow`` itself does not import this package.
"""

from aflow.model.distribution import install_command

try:
    from aflow.web.aiohttp_adapter import aiohttp_app, aiohttp_ingest
    from aflow.web.asgi import app
    from aflow.web.collector import JobCollector
    from aflow.web.ingest import ingest
    from aflow.web.jobs import Jobs
    from aflow.web.serve import WebServer, serve
except ModuleNotFoundError as _missing:
    _package = (_missing.name or "").partition(".")[0]
    if _package not in {"prometheus_client", "starlette", "uvicorn"}:
        raise
    raise ImportError(
        f"aflow.web needs {_package}, which is in the extra 'web': {install_command('web')}",
        name=_package,
    ) from _missing

__all__ = [
    "JobCollector",
    "Jobs",
    "WebServer",
    "aiohttp_app",
    "aiohttp_ingest",
    "app",
    "ingest",
    "serve",
]
