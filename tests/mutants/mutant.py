"""One mutant: a guard, how it is broken, and the tests that must go red then."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in `file` (a path from the root) and is replaced by `new`.

    `guard` says what holds in the program as it is; `tests` are what pytest is given: files, or tests in them.
    """

    name: str
    guard: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text with the mutant in it. Raises ValueError when it does not apply to this text."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: the text to be replaced stands {found} times in {self.file}, not once")
        if self.new == self.old:
            raise ValueError(f"{self.name}: nothing is replaced")
        return text.replace(self.old, self.new)
