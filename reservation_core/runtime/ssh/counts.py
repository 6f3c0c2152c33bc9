"""What the SSH server of a process has done, for its metrics."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class SshRefusal(StrEnum):
    """Why a connection was closed before it was authenticated, or a stream was not opened."""

    WRONG_KEY = "wrong_key"
    SERVER_FULL = "server_full"
    ADDRESS_FULL = "address_full"
    DISPLACED = "displaced"
    HANDSHAKE = "handshake"
    TOO_MANY_STREAMS = "too_many_streams"
    FORWARDING = "forwarding"
    JOB = "job"


class StreamKind(StrEnum):
    """What a channel of a connection is."""

    SHELL = "shell"
    COMMAND = "command"
    SFTP = "sftp"
    PORT = "port"
    JUMP = "jump"


@dataclass(slots=True)
class SshCounts:
    """Counters since the start of the process, and what is open."""

    open: int = 0
    authenticated: int = 0
    refused: Counter[SshRefusal] = field(default_factory=Counter)
    streams: Counter[StreamKind] = field(default_factory=Counter)
    open_streams: Counter[StreamKind] = field(default_factory=Counter)
