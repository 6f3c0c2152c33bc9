"""What passes between the control plane and a pod's minders: one request with descriptors, then frames.

A frame is a letter, the length of its content in 4 bytes (big-endian), and the content. Part of the supervisor, which
starts once per pod: it imports next to nothing.
"""

import os

from reservation_core.adapters.local.kernel import exit_code_of

ENTRANCE = "entrance"
"""The socket in a pod's directory at which its supervisor takes requests."""

TERMINALS = "terminals"
"""The folder in a pod's directory with a socket for each terminal that is kept; the newest has the highest number.

A name is the time of its start in ns, a hyphen, and the pid of its keeper.
"""

DESCRIPTION = ".of"
"""What follows a socket's name in that of its description: a symbolic link, which is there whole or not at all.

It leads to the terminal's name, the pid of its program, and the user who opened it, with a slash between two.
"""

VERSION = "1"
MOST_REQUEST_BYTES = 1024 * 1024
MOST_FRAME_BYTES = 64 * 1024
HEAD_BYTES = 5

# From the control plane.
INPUT = b"I"
END_OF_INPUT = b"Z"
SIZE = b"W"
SIGNAL = b"S"
HANG_UP = b"H"
# From the minder.
STARTED = b"B"
OUTPUT = b"O"
WAIT_STATUS = b"K"
EXIT = b"E"
REFUSED = b"R"

SIGNALS = {
    "ABRT": 6, "ALRM": 14, "CONT": 18, "HUP": 1, "INT": 2, "KILL": 9, "PIPE": 13, "QUIT": 3, "TERM": 15, "TSTP": 20,
    "USR1": 10, "USR2": 12, "WINCH": 28,
}  # fmt: skip
"""The signals that may be sent, by their names without SIG, with Linux's numbers."""


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """A frame; the content has at most MOST_FRAME_BYTES."""
    return kind + len(content).to_bytes(4, "big") + content


def read_frame(buffer: bytearray) -> tuple[bytes, bytes] | None:
    """Take the first frame from a buffer; None until it is complete. Raises ValueError if no minder sends it."""
    if len(buffer) < HEAD_BYTES:
        return None
    size = int.from_bytes(buffer[1:HEAD_BYTES], "big")
    if size > MOST_FRAME_BYTES:
        raise ValueError(f"a frame of {size} bytes")
    if len(buffer) < HEAD_BYTES + size:
        return None
    kind, content = bytes(buffer[:1]), bytes(buffer[HEAD_BYTES : HEAD_BYTES + size])
    del buffer[: HEAD_BYTES + size]
    return kind, content


def end_frames(status: int) -> bytes:
    """The frames that report how a program ended: its status as waitpid(2) returns it, and its exit code."""
    return frame(WAIT_STATUS, str(status).encode()) + frame(EXIT, str(exit_code_of(status)).encode())


def size_content(columns: int, rows: int) -> bytes:
    """The content of a SIZE frame."""
    return columns.to_bytes(2, "big") + rows.to_bytes(2, "big")


class Request:
    """A program to start. `terminal`: columns, rows and kind, or None for pipes, whose ends come with the request."""

    def __init__(
        self,
        command: list[str],
        variables: dict[str, str],
        terminal: tuple[int, int, str] | None,
        person: str = "",
    ) -> None:
        self.command = command
        self.variables = variables
        self.terminal = terminal
        self.person = person

    def encode(self) -> bytes:
        """The request with its length before it. Raises ValueError for text that no process can receive."""
        fields = [VERSION, *(str(part) for part in self.terminal or ("", "", ""))]
        fields += [str(len(self.command)), *self.command, str(len(self.variables))]
        fields += [text for variable in self.variables.items() for text in variable]
        fields.append(self.person)  # supervisors of earlier versions read no further than the variables
        if any("\0" in field for field in fields):
            raise ValueError("a NUL character")
        content = b"".join(os.fsencode(field) + b"\0" for field in fields)
        if len(content) > MOST_REQUEST_BYTES:
            raise ValueError(f"more than {MOST_REQUEST_BYTES} bytes")
        return len(content).to_bytes(4, "big") + content


def decode_request(content: bytes) -> Request:
    """A request without its length. Raises ValueError for another version's."""
    rest = iter([os.fsdecode(field) for field in content.split(b"\0")[:-1]])
    if next(rest) != VERSION:
        raise ValueError("another version of the server started this job; its next attempt can be entered")
    columns, rows, kind = next(rest), next(rest), next(rest)
    command = [next(rest) for _ in range(int(next(rest)))]
    variables = {next(rest): next(rest) for _ in range(int(next(rest)))}
    return Request(command, variables, (int(columns), int(rows), kind) if columns else None, next(rest, ""))
