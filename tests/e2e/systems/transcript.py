"""A guide's transcripts, read so that they can be played: who types what when, what is answered, and who is told what.

A transcript is a fenced block of the kind `console`. In it
- `# minute 6` says that it becomes this time, counted from `# minute 0`,
- `ada$ gpu-dev …` is what somebody types, and the lines up to the next such line are of what is shown: each in this
  order, with other lines between them perhaps; `…` stands for anything,
- `# ada is notified: offered bkg-7f3k9q2m` is a notification that arrives.

Ids (and codes) are examples: each stands for one thing in the whole guide, whatever its real id is when it is played.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_TIME = re.compile(r"# minute (\d+)")
_TOLD = re.compile(r"# (\w+) is notified: (.+)")
_TYPED = re.compile(r"(\w+)\$ gpu-dev (.+)")
_EXAMPLE = re.compile(r"\b(?:job|bkg|ser|mnt|ntg|tok|code)-[0-9a-z]{8}\b")


@dataclass
class Step:
    """One thing that happens; `line` is where the guide says it."""

    line: str


@dataclass
class Time(Step):
    """It becomes so late, counted from the first such step."""

    after: timedelta


@dataclass
class Told(Step):
    """Somebody is told something of something."""

    who: str
    kind: str
    about: str


@dataclass
class Typed(Step):
    """Somebody types a command, and is shown these lines among others."""

    who: str
    words: list[str]
    shown: list[str] = field(default_factory=list)


def transcript(guide: str) -> Iterator[Step]:
    """The steps of a guide, in order. Raises ValueError for a line that is none of them, or a block without end."""
    blocks = _BLOCK.findall(guide)
    if len(blocks) != guide.count("```console"):
        raise ValueError("a transcript has no end")
    for block in blocks:
        typed: Typed | None = None
        for line in block.splitlines():
            if (time := _TIME.fullmatch(line)) is not None:
                yield from _ended(typed)
                typed = None
                yield Time(line, timedelta(minutes=int(time[1])))
            elif (told := _TOLD.fullmatch(line)) is not None:
                yield from _ended(typed)
                typed = None
                for part in told[2].split(", "):
                    kind, _, about = part.partition(" ")
                    yield Told(line, told[1], kind, about)
            elif (found := _TYPED.fullmatch(line)) is not None:
                yield from _ended(typed)
                typed = Typed(line, found[1], shlex.split(found[2]))
            elif typed is not None and line.strip():
                typed.shown.append(line)
            elif line.strip():
                raise ValueError(f"what is this line of a transcript? {line!r}")
        yield from _ended(typed)


def _ended(typed: Typed | None) -> Iterator[Step]:
    if typed is not None:
        yield typed


@dataclass
class Examples:
    """What each example of the guide stands for.

    With `whole` a line that is only `…` stands for any lines, and the guide has to show all others.
    """

    example: ClassVar[re.Pattern[str]] = _EXAMPLE
    whole: ClassVar[bool] = False
    real: dict[str, str] = field(default_factory=dict)

    def put_in(self, words: str) -> str:
        """The text with the real things in it. Raises KeyError for an example that stands for nothing yet."""
        return self.example.sub(lambda found: self.real.get(found[0]) or _unknown(found[0]), words)

    def learn(self, shown: list[str], answer: str) -> str | None:
        """Find the lines in an answer, in their order; what new examples stand for is seen there.

        Returns what is not as it should be, None when nothing is. Nothing is learnt then.
        """
        new: dict[str, str] = {}
        left = [" ".join(line.split()) for line in answer.splitlines() if line.strip()]
        any_lines = not self.whole
        for line in shown:
            if self.whole and line.strip() == "…":
                any_lines = True
                continue
            pattern, names = self._pattern(line, new)
            while left:
                found = pattern.fullmatch(left.pop(0))
                if found is not None:
                    new |= dict(zip(names, found.groups(), strict=True))
                    break
                if not any_lines:
                    return f"missing here: {line}"
            else:
                return f"missing: {line}"
            any_lines = not self.whole
        if left and not any_lines:
            return f"not in the page: {left[0]}"
        self.real |= new
        return None

    def _pattern(self, line: str, new: dict[str, str]) -> tuple[re.Pattern[str], list[str]]:
        known = self.real | new
        names: list[str] = []
        text = ""
        at = 0
        squeezed = " ".join(line.split())
        for found in self.example.finditer(squeezed):
            text += _literal(squeezed[at : found.start()])
            example, at = found[0], found.end()
            if example in known:
                text += re.escape(known[example])
            elif example in names:
                text += rf"\{names.index(example) + 1}"
            else:
                names.append(example)
                text += f"({_shape(example)})"
        return re.compile(text + _literal(squeezed[at:])), names


def _shape(example: str) -> str:
    """A pattern of all that an example could stand for."""
    if example.startswith("gpudev_"):
        return r"gpudev_[\w-]+"
    if re.search(r" \d{4}\b", example) is None:
        return f"{example.partition('-')[0]}-[0-9a-z]+"
    return re.sub(r"[A-Z][a-z]{2}", "[A-Z][a-z]{2}", re.sub(r"\d+", r"\\d+", example))


def _literal(text: str) -> str:
    return ".*".join(re.escape(part) for part in text.split("…"))


def _unknown(example: str) -> str:
    raise KeyError(f"the guide uses {example} before it was shown")
