"""Terminal output as HTML: text, with CSS classes for its colours (styles/job.css)."""

import re
from html import escape

from rich.ansi import AnsiDecoder
from rich.color import ColorType
from rich.style import Style

LONGEST_LINE = 16_384
MOST_CHANGES = 500
"""Changes of colour in a line that are followed: a log of nothing else would take many seconds to draw."""
# Titles and links, cursor movements, other sequences. No two parts can begin alike, so matching takes linear time.
_SEQUENCE = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[(-/].|[^\x1b[(-/])?", re.DOTALL)
_LOOKS = re.compile(r"\x1b\[[0-9;]{0,50}m")
_CUT = " … (the line goes on: download the log to see it whole)"


class TerminalLines:
    """Converts lines in order: a colour lasts until it is reset, as on a terminal."""

    def __init__(self) -> None:
        self._decoder = AnsiDecoder()

    def html(self, line: str) -> str:
        """A line without its end. Text that a terminal would have overwritten (`\\r`) is left out.

        Colours beyond the terminal's sixteen keep the colour of the text around them.
        """
        shown = line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + _CUT
        decoded = self._decoder.decode_line(_only_looks(shown))
        text = decoded.plain
        parts: list[str] = []
        begin = 0
        for span in decoded.spans:  # spans of one decoder never overlap
            parts.append(escape(text[begin : span.start]))
            classes = _classes(span.style) if isinstance(span.style, Style) else ""
            piece = escape(text[span.start : span.end])
            parts.append(f'<span class="{classes}">{piece}</span>' if classes else piece)
            begin = span.end
        parts.append(escape(text[begin:]))
        return "".join(parts)


def _only_looks(line: str) -> str:
    """The line without escape sequences but those for colours, which the decoder always understands."""
    followed = 0

    def kept(found: re.Match[str]) -> str:
        nonlocal followed
        if followed == MOST_CHANGES or _LOOKS.fullmatch(found[0]) is None:
            return ""
        followed += 1
        return found[0]

    return _SEQUENCE.sub(kept, line)


def _classes(style: Style) -> str:
    found = [
        f"ansi-{place}{color.number}"
        for place, color in (("f", style.color), ("b", style.bgcolor))
        if color is not None and color.type is ColorType.STANDARD and color.number is not None
    ]
    looks = (("bold", style.bold), ("dim", style.dim), ("italic", style.italic), ("underline", style.underline))
    return " ".join([*found, *(f"ansi-{name}" for name, on in looks if on)])
