"""Charts as text of SVG: lines over time, and a histogram over a logarithmic axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH: Final = 960
_HEIGHT: Final = 240
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 28
_COLOURS: Final = (
    "#2f6fb3",
    "#d1662a",
    "#3a9457",
    "#9152b0",
    "#b8992c",
    "#4aa5a5",
    "#b04a6a",
    "#777777",
)

#: Points of a line that are drawn, and bars of a histogram.
_POINTS: Final = 600
_BARS: Final = 80


@dataclass(frozen=True, slots=True)
class Line:
    """A named line through points of seconds and values."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, lines: Sequence[Line], *, unit: str) -> str:
    """Return a figure with ``lines``; empty if none has a point."""
    lines = [one for one in lines if one.points]
    if not lines:
        return ""
    last = max(at for one in lines for at, _ in one.points) or 1.0
    most = max(value for one in lines for _, value in one.points)
    top = _rounded(most) or 1.0
    parts = [*_grid(top), *_seconds(last)]
    for number, one in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        thinned = one.points[:: max(1, len(one.points) // _POINTS)]
        places = [(_x(at / last), _y(value / top), at, value) for at, value in thinned]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
        parts.append(f'<polyline class="series" stroke="{colour}" points="{path}"/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"><title>{escape(one.name)}, {at:.1f} s: '
            f"{value:,.2f} {escape(unit)}</title></circle>"
            for x, y, at, value in places
        ]
    return _figure(title, parts, [one.name for one in lines])


def bar_chart(title: str, bars: Sequence[tuple[float, int]]) -> str:
    """Return a histogram of values (above 0) with their counts, over a logarithmic axis; empty without any."""
    bars = [(max(value, 0.001), count) for value, count in bars if count]
    if not bars:
        return ""
    low, high = math.log10(bars[0][0]), math.log10(bars[-1][0])
    low, high = (
        math.floor(low * 4) / 4,
        max(math.ceil(high * 4) / 4, math.floor(low * 4) / 4 + 0.25),
    )
    counts: Counter[int] = Counter()
    for value, count in bars:
        counts[min(_BARS - 1, int((math.log10(value) - low) / (high - low) * _BARS))] += count
    top = _rounded(max(counts.values()))
    parts = [*_grid(top), *_decades(low, high)]
    width = (_WIDTH - _LEFT - _RIGHT) / _BARS
    for place, count in sorted(counts.items()):
        y = _y(count / top)
        begin, end = (10 ** (low + (high - low) * one / _BARS) for one in (place, place + 1))
        parts.append(
            f'<rect x="{_x(place / _BARS):.1f}" y="{y:.1f}" width="{width - 1:.1f}" '
            f'height="{max(1.0, _HEIGHT - _BOTTOM - y):.1f}" fill="{_COLOURS[0]}"><title>{begin:.3g} to {end:.3g} ms: '
            f"{count:,}</title></rect>"
        )
    return _figure(title, parts, [])


def _figure(title: str, parts: Sequence[str], names: Sequence[str]) -> str:
    legend = " ".join(
        f'<span style="color:{_COLOURS[number % len(_COLOURS)]}">■</span> {escape(name)}'
        for number, name in enumerate(names)
    )
    return (
        f"<figure><figcaption>{escape(title)} {legend}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg></figure>'
    )


def _grid(top: float) -> Iterator[str]:
    for part in range(5):
        y = _y(part / 4)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * part / 4:,.4g}</text>'


def _seconds(last: float) -> Iterator[str]:
    for part in range(6):
        yield (
            f'<text x="{_x(part / 5):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{last * part / 5:.3g} s</text>'
        )


def _decades(low: float, high: float) -> Iterator[str]:
    for part in range(6):
        value = 10 ** (low + (high - low) * part / 5)
        yield f'<text x="{_x(part / 5):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{value:.3g}</text>'


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _rounded(value: float) -> float:
    """Return the next value from ``value`` on with a digit of 1, 2 or 5; 0 for 0."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((power * one for one in (1, 2, 5, 10) if power * one >= value), power * 10)
