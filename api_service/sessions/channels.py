"""Kubernetes' channels over a WebSocket: each message begins with the number of its channel.

The protocol is `v5.channel.k8s.io` of Kubernetes' remote commands (k8s.io/apimachinery, remotecommand), so that its
ordinary clients work; `v4.channel.k8s.io` lacks the closing of a channel.
"""

import json
from enum import IntEnum
from typing import Any

from reservation_core.ports.sessions.pod_streams import ProgramEnd, TerminalSize

SUBPROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_MOST_CHARACTERS = 10_000


class Channel(IntEnum):
    """What a message carries."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4
    CLOSE = 255


def status_of(end: ProgramEnd) -> bytes:
    """The message that says how a program ended, as Kubernetes' `Status`."""
    if end.exit_code == 0:
        return _status({"status": "Success"})
    if end.exit_code is None:
        return _status({"status": "Failure", "reason": "InternalError", "message": end.detail, "code": 500})
    cause = {"reason": "ExitCode", "message": str(end.exit_code)}
    message = f"command terminated with exit code {end.exit_code}"
    details = {"causes": [cause]}
    return _status({"status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": details})


def size_in(content: bytes) -> TerminalSize | None:
    """The size in a message of the resize channel; None for anything else."""
    try:
        found = json.loads(content)
        columns, rows = int(found["Width"]), int(found["Height"])
    except (ValueError, KeyError, TypeError):
        return None
    if not (0 < columns <= _MOST_CHARACTERS and 0 < rows <= _MOST_CHARACTERS):
        return None
    return TerminalSize(columns, rows)


def _status(fields: dict[str, Any]) -> bytes:
    return bytes([Channel.STATUS]) + json.dumps({"metadata": {}, **fields}).encode()
