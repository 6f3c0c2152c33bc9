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


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended: its exit code (128 + n after signal n), or None and why it is not known."""

    exit_code: int | None
    detail: str = ""


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


def read_end(status: bytes) -> ProgramEnd:
    """The end that a `metav1.Status` tells."""
    try:
        said = json.loads(status)
        if said.get("status") == "Success":
            return ProgramEnd(0)
        causes = (said.get("details") or {}).get("causes") or ()
        for cause in causes:
            if cause.get("reason") == "ExitCode":
                return ProgramEnd(int(cause["message"]))
        return ProgramEnd(None, str(said.get("message") or _NOT_KNOWN))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ProgramEnd(None, _NOT_KNOWN)
