"""Curves of the allocated share over the arrived load, as SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT, _MARGIN, _GAP = 460, 320, 52, 30
_X, _Y = (84, 130), (84, 100)
_COLOURS = ("#8c8c8c", "#d95f02", "#1b5fa8", "#66a3d9")
_DASHES = ("", "", "", "5 3")


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one trace: by name, the share in per cent at each per cent of load, from 0."""

    title: str
    curves: Mapping[str, Sequence[float]]


def draw(panels: Sequence[Panel]) -> str:
    """The panels side by side, with one legend each."""
    width = _GAP + len(panels) * (_WIDTH + _GAP)
    box = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT + 40}"'
    lines = [
        f'<svg {box} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{_HEIGHT + 40}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        lines.append(f'<g transform="translate({_GAP + number * (_WIDTH + _GAP)},20)">')
        lines.extend(_panel(panel))
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    right, bottom = _WIDTH, _HEIGHT - _MARGIN
    yield f'<text x="{(_MARGIN + right) / 2}" y="0" text-anchor="middle" font-weight="bold">{panel.title}</text>'
    for share in range(_Y[0], _Y[1] + 1, 4):
        y = _at(share, _Y, bottom, 10)
        yield f'<line x1="{_MARGIN}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e0e0e0"/>'
        yield f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{share}</text>'
    for load in range(90, _X[1] + 1, 10):
        x = _at(load, _X, _MARGIN, right)
        yield f'<line x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{bottom}" stroke="#e0e0e0"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{load}</text>'
    middle = f'x="{(_MARGIN + right) / 2}" y="{bottom + 34}" text-anchor="middle"'
    yield f"<text {middle}>cards asked for, % of all cards</text>"
    side = f'transform="translate(14,{bottom / 2}) rotate(-90)" text-anchor="middle"'
    yield f"<text {side}>allocated, % of all cards</text>"
    for number, (name, curve) in enumerate(panel.curves.items()):
        look = f'stroke="{_COLOURS[number]}" stroke-width="2" stroke-dasharray="{_DASHES[number]}" fill="none"'
        points = " ".join(
            f"{_at(load, _X, _MARGIN, right):.1f},{_at(share, _Y, bottom, 10):.1f}"
            for load, share in enumerate(curve[: _X[1] + 1])
            if load >= _X[0] and share >= _Y[0]
        )
        yield f'<polyline points="{points}" {look}/>'
        y = bottom - 16 * (len(panel.curves) - number)
        yield f'<line x1="{right - 190}" y1="{y}" x2="{right - 160}" y2="{y}" {look}/>'
        yield f'<text x="{right - 154}" y="{y + 4}">{name}: {curve[-1]:.2f} %</text>'


def _at(value: float, scale: tuple[int, int], first: float, last: float) -> float:
    return first + (value - scale[0]) / (scale[1] - scale[0]) * (last - first)
