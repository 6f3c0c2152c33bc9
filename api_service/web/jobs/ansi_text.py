"""What programs print for terminals, as HTML: text, with the classes of its colours (styles/job.css)."""

import re
from html import escape

from rich.ansi import AnsiDecoder
from rich.color import ColorType
from rich.style import Style

LONGEST_LINE = 16_384
MOST_CHANGES = 500
"""So many changes of a line's looks are followed: a log of nothing else would take many seconds to draw."""
# A title or a link; what moves the cursor; anything else. No part begins where another can: time grows with the line.
_SEQUENCE = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[(-/].|[^\x1b[(-/])?", re.DOTALL)
_LOOKS = re.compile(r"\x1b\[[0-9;]{0,50}m")
_CUT = " … (the line goes on: download the log to see it whole)"


class TerminalLines:
    """One after the other: a colour stays until it is taken back, as on a terminal."""

    def __init__(self) -> None:
        self._decoder = AnsiDecoder()

    def html(self, line: str) -> str:
        """A line without its end. What a terminal would have overwritten (`\\r`) is left out.

        What no terminal's sixteen colours are for keeps the colour of the text around it.
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
    """The line with nothing of what is for terminals but its looks, which the decoder can read in any case."""
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
