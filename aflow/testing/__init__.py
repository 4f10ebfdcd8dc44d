"""The test kit, for pipelines and for people who write sources and sinks: see docs/guide/testing.md.

``OperatorHarness`` drives one step by hand, without an event loop; ``TwoInputHarness`` one that reads two streams.
``run_flow`` and ``FlowDriver`` run whole pipelines in virtual time, on ``ScriptedSource`` or ``PushSource`` and
``CollectSink``. ``check_source`` and ``check_sink`` say whether a connector keeps to the contract of ``aflow.connect``,
``check_backend`` whether what keeps keyed state does to that of ``aflow.state.backend``.
``run`` and the decorator ``virtual_time`` are in ``aflow.testing.virtual_time``.
"""

from aflow.model.elements import Active, Idle, Watermark
from aflow.runtime.builtin_connectors.collect_sink import CollectSink
from aflow.testing.backend_checks import check_backend
from aflow.testing.driver import FlowDriver, Outcome, run_flow
from aflow.testing.harness import Mode, OperatorHarness
from aflow.testing.records import At
from aflow.testing.scripted import Crash, End, Pause, ScriptedSource
from aflow.testing.sink_checks import check_sink
from aflow.testing.source_checks import check_source
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
    "Idle",
    "Mode",
    "NothingCanHappen",
    "OperatorHarness",
    "Outcome",
    "Pause",
    "ScriptedSource",
    "TwoInputHarness",
    "VirtualClock",
    "VirtualTimeLoop",
    "Watermark",
    "advance",
    "check_backend",
    "check_sink",
    "check_source",
    "hold",
    "run_flow",
    "settle",
]
