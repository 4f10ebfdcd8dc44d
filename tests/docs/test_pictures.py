"""The pictures of the guide show what runs give today, and what the guide says they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.pictures import runs
from scripts.pictures.digest import FOLDER, digest, digest_in
from scripts.pictures.runs import RUNS
from scripts.pictures.shots import FOLDER as SCREENSHOTS
from scripts.pictures.shots import SHOTS

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = re.compile(r"!\[([^\]]*)\]\((\S+)\)", re.DOTALL)


@pytest.mark.parametrize("name", RUNS)
def test_a_picture_shows_the_current_results_of_its_run(name: str) -> None:
    drawn = digest_in(FOLDER / f"{name}.svg")

    assert drawn == digest(RUNS[name]()), "`make pictures` draws it anew"


def test_each_picture_is_used_in_the_guide_and_has_a_description() -> None:
    shown = {
        (page.parent / link).resolve(): " ".join(words.split())
        for page in DOCS.rglob("*.md")
        for words, link in SHOWN.findall(page.read_text(encoding="utf-8"))
    }
    drawn = {FOLDER / f"{name}.svg" for name in RUNS}
    taken = {SCREENSHOTS / f"{shot.name}.png" for shot in SHOTS}

    assert drawn == set(FOLDER.iterdir())
    assert taken == set(SCREENSHOTS.iterdir())
    assert set(shown) == drawn | taken
    assert [link for link, words in shown.items() if len(words) < 40] == []


def test_screenshots_are_small_and_have_the_size_of_their_windows() -> None:
    for shot in SHOTS:
        content = (SCREENSHOTS / f"{shot.name}.png").read_bytes()
        size = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])

        assert content.startswith(b"\x89PNG")
        assert size == (shot.width, shot.height), "`make screenshots` takes it anew"
        assert len(content) < 150_000


def test_a_picture_of_other_rows_is_detected(tmp_path: Path) -> None:
    picture = tmp_path / "old.svg"
    picture.write_text(f"<svg><desc>{digest([(1, 2)])}</desc></svg>", "utf-8")

    assert digest_in(picture) == digest([(1, 2)])
    assert digest_in(picture) != digest([(1, 3)])


def test_a_picture_without_a_recorded_run_is_detected(tmp_path: Path) -> None:
    picture = tmp_path / "drawn_by_hand.svg"
    picture.write_text("<svg/>", "utf-8")

    assert digest_in(picture) is None


def test_only_the_record_whose_window_has_fired_is_late_not_each_one_before_the_watermark() -> None:
    behind = [
        (at, late)
        for at, _, watermark, late in runs.event_time()
        if watermark is not None and at <= watermark
    ]

    assert behind == [(52, True), (62, False)]


def test_a_silent_split_holds_the_watermark_unless_it_is_idle() -> None:
    rows = runs.idleness()

    assert max(mark for idle_after, _, mark in rows if not idle_after) == 5.999
    assert [mark for idle_after, _, mark in rows if idle_after][8:11] == [5.999, 9.999, 10.999]


def test_an_aligned_source_is_ahead_by_at_most_the_drift_and_one_chunk() -> None:
    rows = runs.alignment()

    alone = max(fast - slow for aligned, _, fast, slow in rows if not aligned)
    aligned = max(fast - slow for aligned, _, fast, slow in rows if aligned)

    assert alone == 54
    assert aligned <= 10 + 4


def test_windows_of_each_kind_contain_the_records_in_the_picture() -> None:
    rows = [row for row in runs.windows() if row[1] == "bob"]

    assert [(start, end, held) for kind, _, start, end, held in rows if "Tumbling" in kind] == [
        (0, 30, [8, 26]),
        (30, 60, [33, 38]),
        (60, 90, [71, 88]),
        (90, 120, [99, 110]),
    ]
    assert [(start, end) for kind, _, start, end, _ in rows if "Sliding" in kind] == [
        (-30, 30),
        (0, 60),
        (30, 90),
        (60, 120),
        (90, 150),
    ]
    assert [(start, end, held) for kind, _, start, end, held in rows if "Session" in kind] == [
        (8, 23, [8]),
        (26, 53, [26, 33, 38]),
        (71, 86, [71]),
        (88, 125, [88, 99, 110]),
    ]
    assert [held for kind, *_, held in rows if "Count" in kind] == [[8, 26, 33], [38, 71, 88]]


def test_a_window_gives_early_results_one_on_time_and_corrections() -> None:
    rows = runs.firings()

    assert [(value, firing, over) for _, _, value, firing, over in rows] == [
        (4, 1, False),
        (8, 2, False),
        (10, 3, True),
        (11, 4, True),
        (12, 5, True),
    ]


def test_the_interval_join_pairs_records_within_the_bounds_and_emits_the_click_without_partner() -> (
    None
):
    lower, upper = runs.BETWEEN
    pairs = [
        (click.at, order.at)
        for click in runs.CLICKS
        for order in runs.ORDERS
        if click.at + lower <= order.at <= click.at + upper
    ]

    assert runs.interval_join() == [*pairs, (70, None)]


def test_the_as_of_join_gives_the_rate_of_the_moment_unless_it_is_too_old() -> None:
    assert runs.as_of_join() == [
        (6, None),
        (20, 1.08),
        (33, 1.08),
        (40, 1.12),
        (58, 1.12),
        (96, 1.05),
        (103, None),
    ]
