"""Scratch folders of killed programs are removed by the next program, others are not."""

from __future__ import annotations

import os
from pathlib import Path

from aflow.state.disk.scratch import claimed_folder, remove_left_over


def left_over(parent: Path) -> Path:
    """Return a folder as a killed process leaves it."""
    folder = claimed_folder(parent)
    (folder.path / "state.sqlite").write_bytes(b"rows")
    os.close(folder.lock)
    return folder.path


def test_a_folder_exists_until_it_is_removed(tmp_path: Path) -> None:
    folder = claimed_folder(tmp_path)
    assert list(tmp_path.iterdir()) == [folder.path]

    folder.remove()

    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_program_is_removed(tmp_path: Path) -> None:
    left_over(tmp_path)

    remove_left_over(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    folder = claimed_folder(tmp_path)

    remove_left_over(tmp_path)

    assert folder.path.is_dir()
    folder.remove()


def test_other_folders_are_not_removed(tmp_path: Path) -> None:
    (tmp_path / "aflow-state-of-mine").mkdir()
    (tmp_path / "aflow-state-notes").write_text("notes")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "in use").touch()

    remove_left_over(tmp_path)

    assert len(list(tmp_path.iterdir())) == 3


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    outside = left_over(tmp_path / "elsewhere")
    (tmp_path / "aflow-state-link").symlink_to(outside)

    remove_left_over(tmp_path)

    assert (outside / "state.sqlite").exists()
