"""What reaches the terminal: the answer on stdout, everything said to the person on stderr."""

import sys


def clean(text: str) -> str:
    """Text with control characters made visible, so that it can't steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Rendered(str):
    """Text whose control characters are ours, such as colours. What it is joined with makes plain text of it."""


def harmless(text: str) -> str:
    """Text that was not made for a terminal with control characters made visible, but for line breaks."""
    return "\n".join(line if line.isprintable() else clean(line) for line in text.split("\n"))


def say(text: str) -> None:
    """Tell the person at the terminal something that is not the answer: on stderr, one line unless rendered."""
    sys.stderr.write(f"{text if isinstance(text, Rendered) else clean(text)}\n")
    sys.stderr.flush()


def put(text: str) -> None:
    """Write (part of) the answer: on stdout. Whoever wrote what is in it can't steer a terminal by it."""
    sys.stdout.write(text if isinstance(text, Rendered) else harmless(text))
    sys.stdout.flush()
