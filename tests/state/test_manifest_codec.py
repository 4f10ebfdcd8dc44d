"""Manifests as JSON: decoding reverses encoding, and all changes of bytes are detected."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import CheckpointError, RestoreError
from aflow.model.elements import CheckpointKind
from aflow.model.key_groups import MOST_KEY_GROUPS
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.state.manifest import (
    FORMAT,
    FileRef,
    Link,
    Manifest,
    StepState,
    SubtaskState,
    flow_of,
    manifest_bytes,
    manifest_of,
    place_bytes,
)

whole = st.integers(0, 2**53)
#: JSON has no lone surrogates.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
paths = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6)
files = st.builds(FileRef, paths, whole, text)


def link(file: FileRef, ends: tuple[int, int]) -> Link:
    return Link(file, *sorted(ends))


links = st.builds(link, files, st.tuples(st.integers(0, 128), st.integers(0, 128)))
chains = st.lists(links, min_size=1, max_size=3).map(tuple)
subtasks = st.builds(SubtaskState, st.integers(0, 9), chains)
steps = st.builds(
    StepState, text, text, st.integers(10, 128), st.lists(subtasks, max_size=2).map(tuple)
)
manifests = st.builds(
    Manifest,
    id=whole,
    kind=st.sampled_from(CheckpointKind),
    flow=text,
    key_groups=st.integers(128, 1 << 20),
    created_at=st.integers(-(2**53), 2**53),
    completed_at=st.integers(-(2**53), 2**53),
    steps=st.lists(steps, max_size=2).map(tuple),
    aflow=text,
)

SMALL = Manifest(
    id=12,
    kind=CheckpointKind.PERIODIC,
    flow="card totals",
    key_groups=128,
    created_at=1_700_000_000_000,
    completed_at=1_700_000_000_050,
    steps=(
        StepState(
            "per card",
            "process",
            1,
            (SubtaskState(0, (Link(FileRef("parts/a", 10, "00000000"), 0, 128),)),),
        ),
    ),
    aflow="1.2.3",
)


@given(manifests)
def test_decoding_reverses_encoding(manifest: Manifest) -> None:
    assert manifest_of(manifest_bytes(manifest), what="manifest") == manifest


@given(manifests)
def test_a_manifest_is_json_in_lines(manifest: Manifest) -> None:
    data = manifest_bytes(manifest)

    assert json.loads(data)["checkpoint"]["flow"] == manifest.flow
    assert data.count(b"\n") > 8


def test_the_change_of_any_byte_is_detected() -> None:
    data = manifest_bytes(SMALL)

    unnoticed: list[bytes] = []
    for at in range(len(data)):
        for flip in (1, 4, 32, 128):
            changed = bytearray(data)
            changed[at] ^= flip
            try:
                if manifest_of(bytes(changed), what="manifest") != SMALL:
                    unnoticed.append(bytes(changed))
            except RestoreError:
                pass

    assert unnoticed == []


def test_an_incomplete_manifest_is_refused() -> None:
    data = manifest_bytes(SMALL).rstrip()

    for cut in range(len(data)):
        with pytest.raises(
            RestoreError, match=r"^some file is no manifest of a checkpoint, or an incomplete one"
        ):
            manifest_of(data[:cut], what="some file")


def test_a_changed_manifest_is_corrupt_by_its_checksum() -> None:
    data = manifest_bytes(SMALL).replace(b"card totals", b"card tables")

    with pytest.raises(
        RestoreError, match=r"is corrupt: its checksum is [0-9a-f]{8} in place of [0-9a-f]{8}"
    ):
        manifest_of(data, what="manifest")


def test_a_newer_format_is_refused_naming_the_version_that_wrote_it() -> None:
    newer = {"format": FORMAT + 1, "aflow": "9.9", "checksum": "x", "checkpoint": {"new": True}}

    with pytest.raises(
        RestoreError, match=rf"format {FORMAT + 1}, written by aflow 9\.9; .*upgrade aflow"
    ):
        manifest_of(json.dumps(newer).encode(), what="manifest")


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"flow": "x"}'])
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(RestoreError, match="is no manifest of a checkpoint"):
        manifest_of(data, what="notes.json")


def with_chain(*chain: Link) -> Manifest:
    return replace(SMALL, steps=(StepState("s", "map", 1, (SubtaskState(0, chain),)),))


@pytest.mark.parametrize("path", ["/etc/passwd", "../other/part", "parts/../../part", ""])
def test_a_manifest_does_not_point_out_of_its_folder(path: str) -> None:
    manifest = with_chain(Link(FileRef(path, 1, "00000000"), 0, 1))

    with pytest.raises(CheckpointError, match="points out of its folder"):
        manifest_bytes(manifest)


def test_a_subtask_without_any_part_is_refused() -> None:
    with pytest.raises(
        CheckpointError, match="checkpoint 12 names no part for subtask 0 of step 's'"
    ):
        manifest_bytes(with_chain())


FILE = FileRef("parts/a", 1, "00000000")


def with_subtask(subtask: int, parallelism: int) -> Manifest:
    state = SubtaskState(subtask, (Link(FILE, 0, 128),))
    return replace(SMALL, steps=(StepState("s", "map", parallelism, (state,)),))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (with_chain(Link(FILE, -1, 1)), "has key groups -1 to 1 of 128 in step 's'"),
        (with_chain(Link(FILE, 2, 1)), "has key groups 2 to 1 of 128 in step 's'"),
        (with_chain(Link(FILE, 0, 129)), "has key groups 0 to 129 of 128 in step 's'"),
        (with_chain(Link(replace(FILE, size=-1), 0, 1)), "has -1 bytes in 'parts/a'"),
        (with_subtask(0, 0), "has 0 subtasks of step 's'"),
        (with_subtask(0, MOST_KEY_GROUPS + 1), "subtasks of step 's'"),
        (with_subtask(2, 2), "has a subtask 2 of 2 of step 's'"),
        (with_subtask(-1, 2), "has a subtask -1 of 2 of step 's'"),
        (replace(SMALL, key_groups=0), "has 0 key groups"),
        (replace(SMALL, key_groups=MOST_KEY_GROUPS + 1), "key groups, which is not between"),
        (replace(SMALL, created_at=MIN_TIMESTAMP - 1), "has a time that is out of range"),
        (replace(SMALL, completed_at=MAX_TIMESTAMP + 1), "has a time that is out of range"),
    ],
)
def test_numbers_that_no_manifest_can_have_are_refused(manifest: Manifest, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        manifest_bytes(manifest)


@given(text)
def test_a_place_names_its_flow(flow: str) -> None:
    assert flow_of(place_bytes(flow, aflow="1.2.3"), what="flow.json") == flow


@pytest.mark.parametrize("data", [b"", b"[]", b'{"flow": 1}', b"\xff"])
def test_a_place_that_names_no_flow_is_refused(data: bytes) -> None:
    with pytest.raises(RestoreError, match=r"^flow\.json does not name a flow"):
        flow_of(data, what="flow.json")


def test_a_place_of_a_newer_format_is_refused() -> None:
    with pytest.raises(RestoreError, match=r"written by aflow 9\.9"):
        flow_of(b'{"format": 99, "aflow": "9.9", "flow": "x"}', what="flow.json")
