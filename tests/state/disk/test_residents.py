"""Eviction of resident keys by generations."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from aflow.model.key_groups import KeyGroupRange
from aflow.state.disk.residents import Residents
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sqlite import SqliteStore
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.specs import ValueState
from aflow.state.tables import Tables


def residents(folder: Path, limit: int) -> tuple[Residents, Scratch]:
    codec = KeyGroupCodec(operator="step", key_groups=KeyGroupRange(0, 4), key_group_count=4)
    tables = Tables("step", None)
    tables.of(ValueState("last", of=int))
    scratch = Scratch(SqliteStore, folder, "step")
    return Residents(codec, tables, scratch, limit, KeyKinds()), scratch


def test_keys_of_the_last_generation_are_evicted_unless_they_were_touched_since(
    tmp_path: Path,
) -> None:
    made, scratch = residents(tmp_path, limit=8)
    for key in range(8):
        made.touch([key])
    made.touch([8])  # evicts 0 and 1, and begins the next generation

    made.touch([2])
    made.touch([9])
    made.touch([10])

    assert [key for key in range(11) if key not in made] == [0, 1, 3, 4]
    scratch.clear()


touched = st.lists(st.integers(0, 12), min_size=1, max_size=6)


@given(st.integers(1, 9), st.lists(st.tuples(touched, st.integers(0, 12)), max_size=20))
def test_no_more_keys_are_resident_than_allowed_and_in_use(
    limit: int, batches: list[tuple[list[int], int]]
) -> None:
    with TemporaryDirectory() as folder:
        made, scratch = residents(Path(folder), limit)
        for keys, admitted in batches:
            made.touch(keys)
            assert all(key in made for key in keys)
            assert sum(key in made for key in range(13)) <= max(limit, len(set(keys)))

            made.admit(admitted)
            in_use = {*keys, admitted}
            assert all(key in made for key in in_use)
            assert sum(key in made for key in range(13)) <= max(limit, len(in_use))
        scratch.clear()
