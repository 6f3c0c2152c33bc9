"""Write `api_service/web/styles/terminal.css`: the 256 colours of terminals, readable on light and dark pages.

`python -m tools.terminal_colours`. Colours move towards black or white until text has the contrast of `TEXT` to the
page; grounds are mixed into the page's colour, so that any of these texts stays readable on any of these grounds.
scripts/true_colours.js does the same for true colours.
"""

from collections.abc import Callable
from pathlib import Path

Rgb = tuple[int, int, int]
SHEET = Path(__file__).parents[1] / "api_service" / "web" / "styles" / "terminal.css"
PAGES: tuple[Rgb, Rgb] = ((0xFF, 0xFF, 0xFF), (0x17, 0x1C, 0x26))
"""`--paper` of styles/site.css, light and dark."""
TEXT = (6.0, 7.0)
"""The least contrast of text to the page, light and dark."""
GROUND = 1.25
"""The greatest contrast of grounds to the page."""
_STEPS = 256
_NAMED = (
    "000000 cd3131 0dbc79 e5e510 2472c8 bc3fbc 11a8cd e5e5e5 666666 f14c4c 23d18b f5f543 3b8eea d670d6 29b8db ffffff"
)
_CUBE = (0, 95, 135, 175, 215, 255)
_HEAD = """\
/* Written by `python -m tools.terminal_colours`. */
[class*="ansi-f"] { color: var(--f); }
[class*="ansi-g"] { background: var(--g); box-shadow: inset 0 -2px var(--u); }
.ansi-bold { font-weight: 700; } .ansi-italic { font-style: italic; } .ansi-underline { text-decoration: underline; }
.ansi-strike { text-decoration: line-through; } .ansi-underline.ansi-strike { text-decoration: underline line-through; }
.ansi-dim:not([class*="ansi-f"]) { color: var(--quiet); }
.ansi-inverse { background: var(--f, var(--ink)); color: var(--paper); box-shadow: none; }
"""


def palette() -> list[Rgb]:
    """The 256 colours as terminals define them."""
    named = [_rgb(digits) for digits in _NAMED.split()]
    cube = [(red, green, blue) for red in _CUBE for green in _CUBE for blue in _CUBE]
    greys = [(8 + 10 * step,) * 3 for step in range(24)]
    return [*named, *cube, *greys]


def contrast(one: Rgb, other: Rgb) -> float:
    """The contrast of two colours, 1 to 21 (WCAG 2)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def readable(colour: Rgb, dark: bool) -> Rgb:
    """The colour for text on the page."""
    end: Rgb = (255, 255, 255) if dark else (0, 0, 0)
    return _mixed(colour, end, lambda mixed: contrast(mixed, PAGES[dark]) >= TEXT[dark])


def ground(colour: Rgb, dark: bool) -> Rgb:
    """The colour for the ground of text."""
    return _mixed(colour, PAGES[dark], lambda mixed: contrast(mixed, PAGES[dark]) <= GROUND)


def sheet() -> str:
    """The style sheet."""
    lines = []
    for number, colour in enumerate(palette()):
        text = f"light-dark({_hex(readable(colour, False))},{_hex(readable(colour, True))})"
        behind = f"light-dark({_hex(ground(colour, False))},{_hex(ground(colour, True))})"
        lines.append(f".ansi-f{number}{{--f:{text}}}.ansi-g{number}{{--g:{behind};--u:{text}}}\n")
    return _HEAD + "".join(lines)


def _mixed(colour: Rgb, end: Rgb, is_enough: Callable[[Rgb], bool]) -> Rgb:
    """The colour with as little of `end` as is enough."""
    low, high = 0, _STEPS
    while low < high:
        step = (low + high) // 2
        if is_enough(_step(colour, end, step)):
            high = step
        else:
            low = step + 1
    return _step(colour, end, low)


def _step(colour: Rgb, end: Rgb, step: int) -> Rgb:
    red, green, blue = (
        (one * (_STEPS - step) + other * step) // _STEPS for one, other in zip(colour, end, strict=True)
    )
    return red, green, blue


def _luminance(colour: Rgb) -> float:
    red, green, blue = (part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(digits: str) -> Rgb:
    return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)


def _hex(colour: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


if __name__ == "__main__":
    SHEET.write_text(sheet())
