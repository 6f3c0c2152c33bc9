"""Terminal output as HTML: text, with CSS classes for its looks (styles/terminal.css)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

LONGEST_LINE = 16_384
MOST_CHANGES = 500
"""Changes of looks in a line that are followed: a log of nothing else would take many seconds to draw."""
# Titles and links, other sequences, all within a line. No two parts can begin alike, so matching takes linear time.
_SEQUENCE = r"\x1b(?:\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[(-/][^\n]|[^\x1b[(-/\n])?"
_TOKEN = re.compile(rf"(?P<sequence>{_SEQUENCE})|(?P<back>[\r\b])|[^\x1b\r\b]+", re.DOTALL)
_HIDDEN = re.compile(rf"{_SEQUENCE}|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OVERWRITES = re.compile(r"[\r\b]|\x1b\[[01]?G")
_LOOKS = re.compile(r"\x1b\[[0-9;:]{0,100}m")
_TO_LINE_START = re.compile(r"\x1b\[[01]?G")
_INVISIBLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_CUT = " … (the line goes on: download the log to see it whole)"
_CUBE = (0, 95, 135, 175, 215, 255)
_SWITCHES = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underline": True},
    7: {"inverse": True},
    9: {"strike": True},
    21: {"underline": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underline": False},
    27: {"inverse": False},
    29: {"strike": False},
}


@dataclass(frozen=True, slots=True)
class Colour:
    """One of a terminal's 256 colours; `exact` (six hexadecimal digits): it is the nearest to this one."""

    number: int
    exact: str = ""

    @classmethod
    def nearest(cls, red: int, green: int, blue: int) -> "Colour":
        """The nearest of the cube and the greys to a true colour."""
        wanted = (red, green, blue)
        steps = [_nearest_step(part) for part in wanted]
        grey = max(0, min(23, round((sum(wanted) / 3 - 8) / 10)))
        in_cube = sum((_CUBE[step] - part) ** 2 for step, part in zip(steps, wanted, strict=True))
        in_greys = sum((8 + 10 * grey - part) ** 2 for part in wanted)
        number = 232 + grey if in_greys < in_cube else 16 + 36 * steps[0] + 6 * steps[1] + steps[2]
        return cls(number, f"{red:02x}{green:02x}{blue:02x}")


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks of text: colours of text and ground, and switches."""

    text: Colour | None = None
    ground: Colour | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    inverse: bool = False
    strike: bool = False

    def tag(self) -> str:
        """The opening `span`; empty for plain text."""
        names = [f"ansi-{place}{colour.number}" for place, colour in self._colours()]
        switches = ("bold", "dim", "italic", "underline", "inverse", "strike")
        names += [f"ansi-{name}" for name in switches if getattr(self, name)]
        if not names:
            return ""
        exact = "".join(f' data-{place}="{colour.exact}"' for place, colour in self._colours() if colour.exact)
        return f'<span class="{" ".join(names)}"{exact}>'

    def _colours(self) -> list[tuple[str, Colour]]:
        return [(place, colour) for place, colour in (("f", self.text), ("g", self.ground)) if colour is not None]

    def after(self, sequence: str) -> "Looks":
        """The looks after a sequence such as `ESC [1;38;5;208m`; unknown parts change nothing."""
        looks = self
        parts = iter(sequence[2:-1].split(";"))
        for part in parts:
            first, *more = (int(digits) if digits else None for digits in part.split(":"))
            code = first or 0
            if code in (38, 48, 58):
                colour = _colour_in(more) if more else _colour_after(parts)
                if colour is not None and code != 58:
                    looks = replace(looks, text=colour) if code == 38 else replace(looks, ground=colour)
            elif code == 4 and more:
                looks = replace(looks, underline=bool(more[0]))
            elif not more:
                looks = looks.switched(code)
        return looks

    def switched(self, code: int) -> "Looks":
        """The looks after a code that needs no others."""
        if code == 0:
            return _PLAIN
        if code in _SWITCHES:
            return replace(self, **_SWITCHES[code])  # type: ignore[arg-type]
        tens, ones = divmod(code, 10)
        if ones == 9 and tens in (3, 4):
            return replace(self, text=None) if tens == 3 else replace(self, ground=None)
        if ones < 8 and tens in (3, 4, 9, 10):
            colour = Colour(ones + 8 * (tens > 8))
            return replace(self, text=colour) if tens in (3, 9) else replace(self, ground=colour)
        return self


_PLAIN = Looks()


class TerminalLines:
    """Converts lines in order: looks last until they are reset, as on a terminal."""

    def __init__(self, looks: Looks = _PLAIN) -> None:
        self._looks = looks

    def html(self, line: str) -> str:
        """A line without its end. Text that a terminal would have overwritten is left out."""
        return "".join(_drawn(looks, text) for looks, text in self._runs(line))

    def unfinished(self, line: str) -> str:
        """The beginning of a line, of which `html` is to get the whole."""
        return TerminalLines(self._looks).html(line)

    def text(self, line: str) -> str:
        """The same as plain text."""
        return "".join(text for _, text in self._runs(line))

    def _runs(self, line: str) -> list[tuple[Looks, str]]:
        """Texts with their looks; neighbours differ in looks."""
        shown = line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + _CUT
        runs: list[tuple[Looks, str]] = []
        overwrites, changes = False, 0
        for token in _TOKEN.finditer(shown):
            piece = token[0]
            if token["sequence"] is not None:
                if changes < MOST_CHANGES and _LOOKS.fullmatch(piece):
                    self._looks, changes = self._looks.after(piece), changes + 1
                overwrites |= _TO_LINE_START.fullmatch(piece) is not None
            elif piece == "\r":
                overwrites = True
            elif piece == "\b":
                _step_back(runs)
            elif text := _INVISIBLE.sub("", piece):
                if overwrites:
                    runs.clear()
                    overwrites = False
                if runs and runs[-1][0] == self._looks:
                    text = runs.pop()[1] + text
                runs.append((self._looks, text))
        return runs


def plain_texts(lines: Sequence[str]) -> str:
    """Lines as `TerminalLines.text` has them, joined by line ends. Looks are not followed, which makes this fast."""
    return _HIDDEN.sub("", "\n".join(TerminalLines().text(line) if _is_special(line) else line for line in lines))


def _is_special(line: str) -> bool:
    return len(line) > LONGEST_LINE or _OVERWRITES.search(line) is not None


def plain_html(line: str) -> str:
    """A line without looks."""
    return escape(TerminalLines().text(line))


def last_state(line: bytes) -> bytes:
    """A line without what a terminal has overwritten from its beginning (`\\r`), as long as it shows something."""
    begin = line.rfind(b"\r", 0, len(line.rstrip(b"\r")))
    return line[begin + 1 :] if begin >= 0 else line


def _nearest_step(part: int) -> int:
    """The step of the cube that is nearest to a colour's red, green or blue."""
    return min(range(len(_CUBE)), key=lambda step: abs(_CUBE[step] - part))


def _drawn(looks: Looks, text: str) -> str:
    tag = looks.tag()
    return f"{tag}{escape(text)}</span>" if tag else escape(text)


def _step_back(runs: list[tuple[Looks, str]]) -> None:
    """Remove the last character, which the next one overwrites."""
    if runs:
        looks, text = runs.pop()
        if text[:-1]:
            runs.append((looks, text[:-1]))


def _colour_in(parts: list[int | None]) -> Colour | None:
    """The colour of `5:n`, `2:r:g:b` or `2:space:r:g:b`."""
    match parts:
        case [5, int(number), *_] if number < 256:
            return Colour(number)
        case [2, int(red), int(green), int(blue)] | [2, _, int(red), int(green), int(blue), *_]:
            return Colour.nearest(red, green, blue) if max(red, green, blue) < 256 else None
        case _:
            return None


def _colour_after(parts: Iterator[str]) -> Colour | None:
    """The colour of `5;n` or `2;r;g;b`, taken from what follows."""
    kind = next(parts, "")
    more = [next(parts, "") for _ in range({"5": 1, "2": 3}.get(kind, 0))]
    if not more or not all(part.isdigit() or not part for part in more):
        return None
    return _colour_in([int(kind), *(int(part or 0) for part in more)])
