"""The holder of a bucket as another job judges it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aflow.runtime.checkpoints.bucket import register
from aflow.runtime.checkpoints.bucket.register import Holder, new_holder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs PID namespaces")


def dead_holder() -> Holder:
    """Return a holder of this host and namespace whose process has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return replace(new_holder(), pid=process.pid)


def test_a_holder_whose_process_has_ended_here_is_dead() -> None:
    holder = dead_holder()

    assert holder.is_dead()
    assert not replace(holder, pid=new_holder().pid).is_dead()


@pytest.mark.parametrize(
    "elsewhere",
    [{"pid_namespace": 1}, {"boot_id": "another"}, {"pid_namespace": 0, "boot_id": ""}],
    ids=["container", "boot", "unknown"],
)
def test_a_holder_of_another_namespace_is_not_dead_although_the_host_name_is_equal(
    elsewhere: dict[str, str | int],
) -> None:
    holder = dead_holder()
    other = Holder(
        holder.token,
        holder.pid,
        holder.host,
        str(elsewhere.get("boot_id", holder.boot_id)),
        int(elsewhere.get("pid_namespace", holder.pid_namespace)),
    )

    assert not other.is_dead()


def test_without_proc_no_holder_is_known_to_be_dead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = dead_holder()
    monkeypatch.setattr(register, "_PID_NAMESPACE", tmp_path / "missing")
    unknown = dead_holder()

    assert (unknown.boot_id, unknown.pid_namespace) == ("", 0)
    assert not here.is_dead()
    assert not unknown.is_dead()
