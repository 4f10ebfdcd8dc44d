# pyright: basic
"""Pictures of the rows of ``runs``. Needs matplotlib, of the dependency group ``docs``.

The pictures stand on a light card of their own, so that they can be read on a dark page too. Text stays text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

from scripts.pictures import runs
from scripts.pictures.runs import Row

CARD: Final = "#fbfaf7"
INK: Final = "#24292f"
BLUE: Final = "#1f6feb"
ORANGE: Final = "#c2570c"
RED: Final = "#c4232b"
GREEN: Final = "#2b7a3d"
GREY: Final = "#8b949e"
COLOURS: Final = {"ada": BLUE, "bob": ORANGE}

#: Any, because only some versions of matplotlib have types for the names.
STYLE: Final[Any] = {
    "svg.hashsalt": "aflow",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "figure.facecolor": CARD,
    "savefig.facecolor": CARD,
    "axes.facecolor": CARD,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
}


def event_time(rows: list[Row]) -> Any:
    """Draw records over arrival and event time, below or above the watermark."""
    figure, axes = pyplot.subplots(figsize=(8, 4.4))
    arrivals = [arrival for _, arrival, _, _ in rows]
    # A row has the watermark before its record; the next row has the one after it.
    marks = [(arrival, mark) for _, arrival, mark, _ in rows if mark is not None and mark > 0]
    axes.step(*_columns(marks), where="pre", color=GREEN, label="watermark: 10 s behind the newest")
    axes.axhline(60, color=GREY, linewidth=1, linestyle="--")
    axes.text(0, 61.5, "the minute from 12:00 ends", color=INK, fontsize=10)
    for wanted, colour, label in ((False, BLUE, "in its minute"), (True, RED, "late")):
        chosen = [(arrival, at) for at, arrival, _, late in rows if late is wanted]
        axes.scatter(*_columns(chosen), color=colour, s=42, zorder=3, label=label)
    axes.annotate("behind the watermark, but\nits minute is not over", (11, 62), (9.2, 22),
                  arrowprops={"arrowstyle": "->", "color": INK}, fontsize=10)  # fmt: skip
    axes.set(xlabel="arrival (s)", ylabel="event time (s after 12:00:00)", ylim=(0, 92))
    axes.set_xticks(arrivals)
    axes.legend(loc="upper left")
    return figure


def idleness(rows: list[Row]) -> Any:
    """Draw the watermark over processing time, with and without ``idle_after``."""
    figure, axes = pyplot.subplots(figsize=(8, 3.4))
    for wanted, colour, label in (
        (False, RED, "without idle_after"),
        (True, GREEN, "idle_after=4 s"),
    ):
        chosen = [(at, mark) for after, at, mark in rows if after is wanted]
        axes.step(
            *_columns(chosen), where="post", color=colour, label=label, linewidth=3 if wanted else 2
        )
    axes.set_xticks(range(0, 20, 5))
    axes.axvline(5, color=GREY, linewidth=1, linestyle="--")
    axes.text(5.2, 17, "west falls silent,\neast goes on", fontsize=10)
    axes.set(xlabel="processing time (s)", ylabel="watermark (s)", xlim=(0, 19), ylim=(0, 22))
    axes.legend(loc="center right")
    return figure


def alignment(rows: list[Row]) -> Any:
    """Draw the watermarks of a fast and a slow source over processing time, alone and aligned."""
    figure, both = pyplot.subplots(1, 2, figsize=(8, 3.4), sharey=True)
    titles = ("each as fast as it can", "Alignment(…, max_drift=10 s)")
    for axes, wanted, title in zip(both, (False, True), titles, strict=True):
        chosen = [row[1:] for row in rows if row[0] is wanted]
        times = [at for at, _, _ in chosen]
        fast, slow = [fast for _, fast, _ in chosen], [slow for _, _, slow in chosen]
        axes.step(times, fast, where="post", color=ORANGE, label="fast source")
        axes.step(times, slow, where="post", color=BLUE, label="slow source")
        axes.fill_between(times, slow, fast, step="post", color=ORANGE, alpha=0.15)
        axes.set(title=title, xlabel="processing time (s)", ylim=(0, 80))
    both[0].set_ylabel("watermark (s)")
    both[0].legend(loc="upper left")
    return figure


def windows(rows: list[Row]) -> Any:
    """Draw the same records in windows of all kinds."""
    kinds = list(runs.KINDS)
    figure, panels = pyplot.subplots(
        len(kinds), 1, figsize=(8, 9), sharex=True, height_ratios=[2, 4, 2, 2]
    )
    for axes, kind in zip(panels, kinds, strict=True):
        chosen = [row[1:] for row in rows if row[0] == kind]
        lanes = _lanes(chosen, 2 if kind.startswith("Sliding") else 1)
        for (key, start, end, held), lane in zip(chosen, lanes, strict=True):
            open_at, ends_at = (held[0], held[-1]) if start is None else (start, end)
            _bar(axes, lane, open_at, ends_at, COLOURS[key], timeless=start is None)
            axes.scatter(held, [lane] * len(held), color=COLOURS[key], s=26, zorder=3)
        middle = {key: [lane for row, lane in zip(chosen, lanes, strict=True) if row[0] == key]
                  for key in COLOURS}  # fmt: skip
        axes.set_yticks([sum(set(at)) / len(set(at)) for at in middle.values()], list(middle))
        axes.set(title=kind, ylim=(-0.7, max(lanes) + 0.7), xlim=(-32, 152))
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
    left_over = [visit.at for visit in runs.VISITS if not _is_in_window(rows, visit)]
    users = [visit.user for visit in runs.VISITS if not _is_in_window(rows, visit)]
    panels[-1].scatter(left_over, [list(COLOURS).index(user) for user in users],
                       facecolors="none", edgecolors=[COLOURS[user] for user in users], s=26)  # fmt: skip
    panels[-1].set_xlabel("event time (s after 12:00:00)")
    return figure


def _lanes(chosen: list[Row], each: int) -> list[int]:
    """Return the lane of each window, so that overlapping windows of a key are above each other."""
    found: list[int] = []
    for key in COLOURS:
        count = sum(row[0] == key for row in chosen)
        found += [list(COLOURS).index(key) * each + index % each for index in range(count)]
    return found


def _is_in_window(rows: list[Row], visit: runs.Visit) -> bool:
    """Return True if a count window contains the visit."""
    return any(
        kind == "Count(3)" and key == visit.user and visit.at in held
        for kind, key, *_, held in rows
    )


def _bar(
    axes: Any, lane: int, start: float, end: float, colour: str, *, timeless: bool = False
) -> None:
    axes.barh(
        lane, end - start, left=start, height=0.62, color=colour, alpha=0.16, edgecolor="none"
    )
    axes.barh(
        lane,
        end - start,
        left=start,
        height=0.62,
        fill=False,
        edgecolor=colour,
        linewidth=1.2,
        linestyle=":" if timeless else "-",
    )


def firings(rows: list[Row]) -> Any:
    """Draw the results of one window over processing time."""
    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    on_time = next(at for at, _, _, _, over in rows if over)
    for at, _, value, firing, over in rows:
        colour, label = (
            (GREY, "early")
            if not over
            else (GREEN, "on time")
            if at == on_time
            else (RED, "corrected")
        )
        axes.bar(at, value, width=2.2, color=colour)
        axes.text(at, value + 0.35, f"{value}\n{label}\nfiring={firing}", ha="center", fontsize=10)
    for index, visit in enumerate(runs.ONE_WINDOW):
        inside = visit.at < 60
        axes.scatter(index * 5, -1, color=BLUE if inside else "none", edgecolors=BLUE, s=26)
    axes.set(xlabel="processing time (s); a dot is a record, filled if it is of this window",
             ylabel="count", ylim=(-2, 17), xlim=(-3, 76))  # fmt: skip
    axes.set_yticks(range(0, 13, 4))
    return figure


def interval_join(rows: list[Row]) -> Any:
    """Draw pairs as lines, and the interval of each left record."""
    figure, axes = pyplot.subplots(figsize=(8, 3.2))
    lower, upper = runs.BETWEEN
    for _, click in runs.CLICKS:
        axes.fill(
            [click, click + lower, click + upper], [1, 0, 0], color=BLUE, alpha=0.13, linewidth=0
        )
    for left, right in rows:
        if right is None:
            axes.text(left, 1.12, "alone (LEFT)", ha="center", color=RED, fontsize=10)
        else:
            axes.plot([left, right], [1, 0], color=INK, linewidth=1.4)
    met = {right for _, right in rows}
    axes.scatter([v.at for v in runs.CLICKS], [1] * len(runs.CLICKS), color=BLUE, s=46, zorder=3)
    for order in runs.ORDERS:
        axes.scatter(
            order.at,
            0,
            color=ORANGE if order.at in met else CARD,
            edgecolors=ORANGE,
            s=46,
            zorder=3,
        )
    axes.set_yticks([1, 0], ["left: clicks", "right: orders"])
    axes.set(xlabel="event time (s after 12:00:00)", ylim=(-0.25, 1.35), xlim=(0, 95))
    return figure


def as_of_join(rows: list[Row]) -> Any:
    """Draw versions as steps, and the joined value of each record."""
    figure, axes = pyplot.subplots(figsize=(8, 3.4))
    ends = [*(rate.at for rate in runs.RATES[1:]), 1_000]
    for rate, end in zip(runs.RATES, ends, strict=True):
        reach = min(end, rate.at + runs.TOLERANCE)
        axes.plot([rate.at, reach], [rate.value] * 2, color=ORANGE, linewidth=3)
        if reach < end:
            axes.plot(
                [reach, min(end, 108)], [rate.value] * 2, color=ORANGE, linewidth=1, linestyle=":"
            )
        axes.scatter(rate.at, rate.value, color=ORANGE, s=46)
    for at, value in rows:
        axes.plot(
            [at, at], [1.0, value or 1.015], color=BLUE if value else RED, linewidth=1, alpha=0.6
        )
        axes.scatter(at, 1.0, color=BLUE if value else RED, s=40, zorder=3)
        if value is None:
            axes.text(at, 1.019, "None", ha="center", color=RED, fontsize=10)
        else:
            axes.scatter(at, value, facecolors=CARD, edgecolors=BLUE, s=30, zorder=3)
    axes.set_yticks([1.0, 1.05, 1.08, 1.12], ["left: payments", "1.05", "1.08", "1.12"])
    axes.set(xlabel="event time (s after 12:00:00)", ylim=(0.985, 1.14), xlim=(0, 108))
    return figure


def _columns(pairs: list[Any]) -> tuple[list[Any], list[Any]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


DRAWINGS: Final[dict[str, Callable[[list[Row]], Any]]] = {
    "event-time": event_time,
    "idleness": idleness,
    "alignment": alignment,
    "windows": windows,
    "firings": firings,
    "interval-join": interval_join,
    "as-of-join": as_of_join,
}


def save(name: str, rows: list[Row], path: str, digest: str) -> None:
    """Draw ``rows`` as the picture ``name``, with ``digest`` in its metadata."""
    with matplotlib.rc_context(STYLE):
        figure = DRAWINGS[name](rows)
        figure.tight_layout()
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": digest})
        pyplot.close(figure)
