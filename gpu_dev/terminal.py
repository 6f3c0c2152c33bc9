"""What reaches the terminal: the answer on stdout, everything said to the person on stderr."""

import sys


def clean(text: str) -> str:
    """Text with control characters made visible, so that it can't steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def say(text: str) -> None:
    """Tell the person at the terminal something that is not the answer: on stderr."""
    sys.stderr.write(f"{clean(text)}\n")
    sys.stderr.flush()


def put(text: str) -> None:
    """Write (part of) the answer: on stdout."""
    sys.stdout.write(text)
    sys.stdout.flush()
