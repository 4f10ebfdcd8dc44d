"""What a killed program has left is removed by the next one, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

from aflow.state.disk.scratch import claimed_folder, remove_left_over


def left_over(parent: Path) -> Path:
    """What stays of a folder when the process that worked in it is killed."""
    folder = claimed_folder(parent)
    (folder.path / "state.sqlite").write_bytes(b"rows")
    os.close(folder.lock)
    return folder.path


def test_a_folder_is_there_until_it_is_removed(tmp_path: Path) -> None:
    folder = claimed_folder(tmp_path)
    assert list(tmp_path.iterdir()) == [folder.path]

    folder.remove()

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_program_has_left_is_removed(tmp_path: Path) -> None:
    left_over(tmp_path)

    remove_left_over(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_which_somebody_works_stays(tmp_path: Path) -> None:
    folder = claimed_folder(tmp_path)

    remove_left_over(tmp_path)

    assert folder.path.is_dir()
    folder.remove()


def test_what_somebody_else_has_put_there_stays(tmp_path: Path) -> None:
    (tmp_path / "aflow-state-of-mine").mkdir()
    (tmp_path / "aflow-state-notes").write_text("notes")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "in use").touch()

    remove_left_over(tmp_path)

    assert len(list(tmp_path.iterdir())) == 3


def test_nothing_is_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    outside = left_over(tmp_path / "elsewhere")
    (tmp_path / "aflow-state-link").symlink_to(outside)

    remove_left_over(tmp_path)

    assert (outside / "state.sqlite").exists()
