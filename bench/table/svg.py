"""A small drawing of curves on logarithmic axes, as SVG text: no library, and the same text for the same numbers."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 460, 300, 62, 34, 14, 62
_COLOURS = ("#0b6bcb", "#c4511c", "#2a7f3f", "#7a4fbf", "#8a6d00")


@dataclass(frozen=True, slots=True)
class Curve:
    """A named series of (x, y), all above zero."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing: its curves share both axes."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]


def drawing(panels: Sequence[Panel], *, columns: int = 2) -> str:
    """All panels in rows of `columns`."""
    rows = math.ceil(len(panels) / columns)
    width, height = columns * _WIDTH, rows * _HEIGHT
    body = [
        f'<g transform="translate({number % columns * _WIDTH} {number // columns * _HEIGHT})">{_panel(panel)}</g>'
        for number, panel in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="#333">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _panel(panel: Panel) -> str:
    xs = [x for curve in panel.curves for x, _ in curve.points]
    ys = [y for curve in panel.curves for _, y in curve.points]
    x_scale = _Scale(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT)
    y_scale = _Scale(*_decades(min(ys), max(ys)), _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text x="{_LEFT}" y="20" font-size="14" font-weight="bold">{html.escape(panel.title)}</text>']
    for value in _powers(*_decades(min(ys), max(ys))):
        at = y_scale(value)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [
        f'<text x="{x_scale(value):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>'
        for value in sorted(set(xs))
    ]
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 30}" text-anchor="end">{html.escape(panel.x)}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="20" text-anchor="end">{html.escape(panel.y)}</text>')
    at = float(_LEFT)
    for number, curve in enumerate(panel.curves):
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in curve.points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x_scale(x):.1f}" cy="{y_scale(y):.1f}" r="3" fill="{colour}"/>' for x, y in curve.points
        ]
        parts.append(f'<rect x="{at:.0f}" y="{_HEIGHT - 20}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{at + 14:.0f}" y="{_HEIGHT - 11}">{html.escape(curve.name)}</text>')
        at += 24 + 6 * len(curve.name)
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)


def _decades(low: float, high: float) -> tuple[float, float]:
    """The powers of ten around a range."""
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** max(
        math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1
    )


def _powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
