"""A page of the documentation whose commands are typed and whose outputs are compared, word by word.

In a fenced block of the kind `console`
- `$ gpu-dev gpus` is typed at a terminal, and the lines up to the next such line are all that it shows: `…` stands
  for any text, and a line with nothing else for any lines,
- `^C` is Ctrl-C. A command that is followed by it, in the next block of the same title, goes on running until then,
- a shown line with `[y/N] y` has the answer typed there; one that ends with `(not shown):` asks for a secret.

Blocks with the same title are the same terminal: ```` ```console title="Second terminal" ````. Ids, dates and secrets
are examples: each stands for one thing in the whole page. The comment `<!-- not played: reason -->` on the line before
a block says why a test can't run it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.pages.terminal import Terminal
from tests.e2e.systems.transcript import Examples
from tests.waiting import eventually_sync

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(
    r'^(?:<!-- not played: (.+?) -->\n)?```console(?: title="(.+?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE
)
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_EXAMPLE = re.compile(
    r"\b(?:job|bkg|ser|mnt|ntg|tok)-[0-9a-z]{8}\b|\bgpudev_[\w-]{20,}"
    rf"|\b{_DAY} \d{{1,2}} [A-Z][a-z]{{2}} \d{{4}}(?: \d\d:\d\d:\d\d)?"
)
_LOOKS = re.compile(
    r"gpu-dev(?: (?:list|show|explain|logs|gpus|nodes|usage|audit|book list)\b(?! (?:un)?cordon).*)?|kubectl get .*"
)
"""Commands that change nothing: they are typed again until what is under way has come about."""


@dataclass
class Line:
    """One line that is typed, or Ctrl-C where `text` is `^C`, and what is shown then."""

    text: str
    shown: list[str] = field(default_factory=list)
    goes_on: bool = False


@dataclass
class Block:
    """Lines that are typed in one terminal before another one."""

    terminal: str
    lines: list[Line]
    not_played: str | None


def blocks_of(page: str) -> list[Block]:
    """The page's blocks in order. Raises ValueError for output before any command, or a block without an end."""
    found = [Block(title, list(_lines(text)), reason or None) for reason, title, text in _BLOCK.findall(page)]
    if len(found) != page.count("```console"):
        raise ValueError("a block has no end, or is written in a way that is not read")
    for number, block in enumerate(found):
        later = [other for other in found[number + 1 :] if other.terminal == block.terminal]
        block.lines[-1].goes_on = bool(later) and later[0].lines[0].text == "^C"
    return found


def _lines(text: str) -> Iterator[Line]:
    line: Line | None = None
    for written in text.splitlines():
        if written.startswith("$ ") or written == "^C":
            if line is not None:
                yield line
            line = Line(written.removeprefix("$ "))
        elif line is None:
            raise ValueError(f"this is shown before anything is typed: {written!r}")
        elif written.strip():
            line.shown.append(written)
    if line is not None:
        yield line


class PageExamples(Examples):
    """Examples of pages: ids, tokens and dates. All that is shown has to be in the page."""

    example = _EXAMPLE
    whole = True


class Play:
    """A page as it is played. `stands_for` says what words of the page are here, such as an address."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, stands_for: Mapping[str, str], secret: str = ""
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._stands_for = stands_for
        self._secret = secret
        self._terminals: dict[str, Terminal] = {}
        self._left_out = re.compile(r"(?!)")
        self.examples = PageExamples()
        self.played: list[str] = []

    def leave_out(self, beginnings: str) -> None:
        """Don't type lines that begin like this pattern."""
        self._left_out = re.compile(beginnings)

    def play(self, page: str) -> None:
        """Type all of it. Raises AssertionError where something else is shown."""
        for block in blocks_of(page):
            if block.not_played is not None:
                continue
            if block.terminal not in self._terminals:
                self._terminals[block.terminal] = Terminal(self._environment, self._folder)
            for line in block.lines:
                if self._left_out.match(line.text) is None:
                    self._type(self._terminals[block.terminal], line)

    def close(self) -> None:
        """Close the terminals."""
        for terminal in self._terminals.values():
            terminal.close()

    def _type(self, terminal: Terminal, line: Line) -> None:
        wanted = [self._here(text) for text in line.shown]
        if line.goes_on:
            terminal.type(self._put_in(line.text))
            shown = terminal.shows(lambda text: self.examples.learn([*wanted, "…"], _after_echo(text)) is None)
            self.played.append(f"$ {line.text}\n{shown}")
            return
        wrong = ""

        def as_written() -> bool:
            nonlocal wrong
            shown, code = self._done(terminal, line, wanted)
            missing = self.examples.learn(wanted, shown)
            wrong = f"$ {line.text}\n{missing}\nexit code {code}; all that is shown:\n{shown}"
            return missing is None

        if _LOOKS.fullmatch(line.text) is None:
            assert as_written(), wrong
        else:
            try:
                eventually_sync(as_written)
            except AssertionError:
                raise AssertionError(wrong) from None
        self.played.append(wrong)

    def _done(self, terminal: Terminal, line: Line, wanted: list[str]) -> tuple[str, int]:
        if line.text == "^C":
            terminal.interrupt()
        else:
            terminal.type(self._put_in(line.text))
        for text in wanted:
            if text.endswith("(not shown):"):
                terminal.answer("(not shown):", self._secret)
            elif (question := re.fullmatch(r".*(\[y/N\]) (\w+)", text)) is not None:
                terminal.answer(question[1], question[2])
        shown, code = terminal.wait()
        return (shown if line.text == "^C" else _after_echo(shown)), code

    def _put_in(self, text: str) -> str:
        return self.examples.put_in(self._here(text))

    def _here(self, text: str) -> str:
        for written, real in self._stands_for.items():
            text = text.replace(written, real)
        return text


def _after_echo(shown: str) -> str:
    """Without the line that was typed, which a terminal shows, too."""
    return shown.partition("\n")[2]
