"""The test kit, for pipelines and for authors of connectors, backends and storages: see docs/guide/testing.md.

``OperatorHarness`` drives one step by hand, without an event loop; ``TwoInputHarness`` a step that reads two streams.
``run_flow`` and ``FlowDriver`` run whole pipelines in virtual time, on ``ScriptedSource`` or ``PushSource`` and
``CollectSink``. ``check_source`` and ``check_sink`` check a connector against the contract of ``aflow.connect``,
``check_backend`` a backend of keyed state against ``aflow.state.backend``, ``check_storage`` a storage of checkpoints
against ``aflow.checkpoints.CheckpointStorage``. ``run`` and the decorator ``virtual_time`` are in
``aflow.testing.virtual_time``. Read ``step_harness.py`` first, then ``driver.py``; fixtures of
aflow's own tests are in ``tests``.
"""

from aflow.model.elements import Active, Idle, Watermark
from aflow.runtime.builtin_connectors.collect_sink import CollectSink
from aflow.testing.backend_checks import check_backend
from aflow.testing.driver import FlowDriver, FlowResult, run_flow
from aflow.testing.harness import Mode, OperatorHarness
from aflow.testing.records import At
from aflow.testing.scripted_source import Crash, End, Pause, ScriptedSource
from aflow.testing.sink_checks import check_sink
from aflow.testing.source_checks import check_discovery, check_source
from aflow.testing.storage_checks import check_storage
from aflow.testing.two_input_harness import TwoInputHarness
from aflow.testing.virtual_time import (
    NothingCanHappen,
    VirtualClock,
    VirtualTimeLoop,
    advance,
    hold,
    settle,
)

__all__ = [
    "Active",
    "At",
    "CollectSink",
    "Crash",
    "End",
    "FlowDriver",
    "FlowResult",
    "Idle",
    "Mode",
    "NothingCanHappen",
    "OperatorHarness",
    "Pause",
    "ScriptedSource",
    "TwoInputHarness",
    "VirtualClock",
    "VirtualTimeLoop",
    "Watermark",
    "advance",
    "check_backend",
    "check_discovery",
    "check_sink",
    "check_source",
    "check_storage",
    "hold",
    "run_flow",
    "settle",
]
