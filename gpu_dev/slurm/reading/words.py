"""From the words of a command line, or of a line of a script, to options, as Slurm's commands read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_dev.slurm.reading.options import Option, Takes


@dataclass(frozen=True, slots=True)
class Given:
    """An option with its value, as it was written in the line `line` of a script; None on the command line."""

    option: Option
    value: str | None
    line: int | None = None

    @property
    def text(self) -> str:
        """The option in its long form."""
        return self.option.flag if self.value is None else f"{self.option.flag}={self.value}"


@dataclass(frozen=True, slots=True)
class Remark:
    """A text about a line or an option: the line of the script (None on the command line), the words, the text."""

    line: int | None
    about: str
    text: str

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{place}{self.about}: {self.text}"


@dataclass(slots=True)
class Words:
    """Options, the words after them, and the faults of words that can't be read."""

    given: list[Given] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    refusals: list[Remark] = field(default_factory=list)


def read_words(
    words: Sequence[str], table: Mapping[str, Option], line: int | None = None, *, mixed: bool = False
) -> Words:
    """Read options up to the first word that is none, or, `mixed`, all of them wherever they stand."""
    read, left = Words(), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            read.operands += left
            break
        if word == "-" or not word.startswith("-"):
            read.operands.append(word)
            if not mixed:
                read.operands += left
                break
        elif word.startswith("--"):
            _read_long(word, left, table, line, read)
        else:
            _read_letters(word[1:], left, table, line, read)
    return read


def _read_long(word: str, left: list[str], table: Mapping[str, Option], line: int | None, read: Words) -> None:
    name, equals, value = word[2:].partition("=")
    option = table.get(name)
    if option is None:
        options = [table[known] for known in table if name and known.startswith(name)]
        if len(options) != 1:
            read.refusals.append(Remark(line, word, _unknown(options, line)))
            return
        [option] = options
    if option.takes is Takes.NOTHING and equals:
        read.refusals.append(Remark(line, word, "This option takes no value."))
    elif option.takes is Takes.VALUE and not equals:
        _add_next(option, left, line, read)
    else:
        read.given.append(Given(option, value if equals else None, line))


def _read_letters(letters: str, left: list[str], table: Mapping[str, Option], line: int | None, read: Words) -> None:
    by_letter = {option.letter: option for option in table.values() if option.letter}
    while letters:
        letter, letters = letters[0], letters[1:]
        option = by_letter.get(letter)
        if option is None:
            read.refusals.append(Remark(line, f"-{letter}", _unknown([], line)))
            return
        if option.takes is Takes.NOTHING:
            read.given.append(Given(option, None, line))
        elif letters or option.takes is Takes.OPTIONAL:
            read.given.append(Given(option, letters or None, line))
            return
        else:
            _add_next(option, left, line, read)


def _add_next(option: Option, left: list[str], line: int | None, read: Words) -> None:
    if left:
        read.given.append(Given(option, left.pop(0), line))
    else:
        read.refusals.append(Remark(line, option.flag, "This option needs a value."))


def _unknown(options: Sequence[Option], line: int | None) -> str:
    if options:
        return f"It can be {' or '.join(option.flag for option in options)}. Write the whole name."
    where = "Remove it from the script" if line is not None else "Leave it out"
    return f"This option is not known. {where}, or see those that are with --help."
