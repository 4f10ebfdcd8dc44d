"""A load for a pipeline of the user: its latency and throughput at a given rate, and the highest rate that it sustains.

Pure, without waiting or clocks: ``arrivals`` (intended times), ``histogram``, ``findings`` (statements about a run),
``rate_search`` (find-max) and ``comparison`` (two runs). Around them: ``load_source`` and ``recorder`` are the ends
that replace those of the flow, ``ends`` checks that they can, ``sampler``, ``machine`` and ``job_observer`` measure,
and ``load_run`` runs. ``result`` is the outcome as data, and ``report`` shows it. Not here: the command line, which is
``aflow.cli``, and the benchmarks of aflow itself, which are the folder ``bench`` of the project.
Read ``load_run.py`` first, then ``load_source.py`` and ``recorder.py``.

Needs the extra ``bench``. ``aflow`` itself does not import this package.
"""

from aflow.model.distribution import install_command

try:
    from aflow.bench.arrivals import (
        ArrivalSchedule,
        ConstantRate,
        PoissonArrivals,
        RampedRate,
        RecordedArrivals,
        SteppedRate,
    )
    from aflow.bench.comparison import RunComparison, compare
    from aflow.bench.load_run import run
    from aflow.bench.rate_search import MaxRate, find_max
    from aflow.bench.record_supply import SourceLoad
    from aflow.bench.report import save_report
    from aflow.bench.result import BenchError, BenchResult, load_result
except ModuleNotFoundError as _missing:
    if (_missing.name or "").partition(".")[0] != "hdrh":
        raise
    raise ImportError(
        f"aflow.bench needs hdrhistogram, which is in the extra 'bench': {install_command('bench')}",
        name="hdrh",
    ) from _missing

__all__ = [
    "ArrivalSchedule",
    "BenchError",
    "BenchResult",
    "ConstantRate",
    "MaxRate",
    "PoissonArrivals",
    "RampedRate",
    "RecordedArrivals",
    "RunComparison",
    "SourceLoad",
    "SteppedRate",
    "compare",
    "find_max",
    "load_result",
    "run",
    "save_report",
]
