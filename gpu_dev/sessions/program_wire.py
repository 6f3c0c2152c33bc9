"""Messages of `v5.channel.k8s.io`, which carry a program's input and output: a channel's number, then bytes."""

import json
from dataclasses import dataclass
from enum import IntEnum

SUBPROTOCOL = "v5.channel.k8s.io"
_NOT_KNOWN = "the server did not say how"


class Channel(IntEnum):
    """The first byte of a message. CLOSE is followed by the number of the channel that ends."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4
    CLOSE = 255


class UnknownEndError(Exception):
    """The server does not say with which exit code a program ended; the text says why."""


@dataclass(frozen=True, slots=True)
class Size:
    """A terminal's size in characters."""

    columns: int
    rows: int


USUAL_SIZE = Size(80, 24)


INPUT = bytes([Channel.STDIN])
END_OF_INPUT = bytes([Channel.CLOSE, Channel.STDIN])


def resize_message(size: Size) -> bytes:
    """The message that gives the program's terminal another size."""
    return bytes([Channel.RESIZE]) + json.dumps({"Width": size.columns, "Height": size.rows}).encode()


def exit_code_in(status: bytes) -> int:
    """The exit code that a `metav1.Status` tells (128 + n after signal n). Raises UnknownEndError."""
    try:
        said = json.loads(status)
        if said["status"] == "Success":
            return 0
        for cause in (said.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnknownEndError(_NOT_KNOWN) from None
    raise UnknownEndError(str(said.get("message") or _NOT_KNOWN))
