"""Curves of waits, as SVG: how many jobs of a hundred have started after so long a wait."""

from collections.abc import Iterator, Mapping, Sequence
from math import log

_WIDTH, _HEIGHT, _MARGIN, _GAP = 460, 320, 52, 30
_FROM_S, _TO_S = 60.0, 60 * 86_400.0
_TICKS = {60: "1 min", 600: "10 min", 3600: "1 h", 21_600: "6 h", 86_400: "1 d", 604_800: "7 d", 2_592_000: "30 d"}
_COLOURS = ("#8c8c8c", "#d95f02", "#1b5fa8", "#2a8c4a")


def draw(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Panels two in a row; each has waits in seconds by rule."""
    rows = -(-len(panels) // 2)
    width, height = _GAP + 2 * (_WIDTH + _GAP), rows * (_HEIGHT + 40)
    box = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg {box} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (title, curves) in enumerate(panels.items()):
        across, down = number % 2, number // 2
        lines.append(f'<g transform="translate({_GAP + across * (_WIDTH + _GAP)},{20 + down * (_HEIGHT + 40)})">')
        lines.extend(_panel(title, curves))
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, curves: Mapping[str, Sequence[float]]) -> Iterator[str]:
    right, bottom = _WIDTH, _HEIGHT - _MARGIN
    yield f'<text x="{(_MARGIN + right) / 2}" y="0" text-anchor="middle" font-weight="bold">{title}</text>'
    for part in range(0, 101, 20):
        y = bottom - part / 100 * (bottom - 10)
        yield f'<line x1="{_MARGIN}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e0e0e0"/>'
        yield f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{part} %</text>'
    for seconds, words in _TICKS.items():
        x = _across(seconds)
        yield f'<line x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{bottom}" stroke="#e0e0e0"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{words}</text>'
    yield f'<text x="{(_MARGIN + right) / 2}" y="{bottom + 36}" text-anchor="middle">started after</text>'
    for number, (rule, waits) in enumerate(curves.items()):
        look = f'stroke="{_COLOURS[number]}" stroke-width="2" fill="none"'
        yield f'<polyline points="{_points(sorted(waits), bottom)}" {look}/>'
        y = bottom - 14 - 16 * (len(curves) - 1 - number)
        yield f'<line x1="{right - 150}" y1="{y}" x2="{right - 124}" y2="{y}" {look}/>'
        yield f'<text x="{right - 118}" y="{y + 4}">{rule}</text>'


def _points(waits: Sequence[float], bottom: int) -> str:
    step = max(1, len(waits) // 200)
    return " ".join(
        f"{_across(wait):.1f},{bottom - (index + 1) / len(waits) * (bottom - 10):.1f}"
        for index, wait in [*list(enumerate(waits))[::step], (len(waits) - 1, waits[-1])]
    )


def _across(seconds: float) -> float:
    bounded = min(max(seconds, _FROM_S), _TO_S)
    return _MARGIN + log(bounded / _FROM_S) / log(_TO_S / _FROM_S) * (_WIDTH - _MARGIN)
