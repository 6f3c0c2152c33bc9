"""The access log: a line of JSON for each request, refused ones included, with the user, the address and the result.

A request only appends an entry to a list; a thread writes the entries in batches. No line holds a credential: of a URL
only the path is logged, which has none.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, MutableMapping
from datetime import datetime, timedelta
from json.encoder import encode_basestring_ascii as _quoted
from logging import LogRecord
from logging.handlers import RotatingFileHandler
from select import PIPE_BUF
from typing import Any, NamedTuple

from api_service.requests import headers
from reservation_core.domain.network.client_addresses import address_of_client, trusted_networks
from reservation_core.domain.time_words import rfc3339
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.settings.error import SettingsError

EVERY_S = 0.5
MOST_LINES = 20_000
"""The most lines that wait to be written; while the disk or the pipe is stuck, further lines are only counted."""
WITH_THE_LOG = "-"
_FILE_BYTES = 100 * 2**20
_FILES_KEPT = 9
_LONGEST_PATH = 300
_AT_A_TIME = 50
_NOT_LOGGED = frozenset({"/healthz", "/readyz", "/static/{digest}/{name}"})


class _Entry(NamedTuple):
    """The fields of a line that waits to be written. Plain values: a request's scope would keep much more alive.

    `of_user`: whose things an administrator looks at, where the path does not say it.
    """

    counted: float
    request_id: str
    user: str | None
    role: str | None
    token: str | None
    peer: str | None
    forwarded: tuple[str, ...]
    method: str
    route: str
    path: str
    status: int
    seconds: float
    of_user: str | None


def name_user(scope: MutableMapping[str, Any], user: str, token: str | None) -> None:
    """Name the user of a request without a token. Routes call this once they know the user, as after a sign-in."""
    scope["named_user"] = (user, token)


class AccessLog:
    """Gathers entries and writes them as the settings say. Raises SettingsError for a file that can't be opened."""

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._trusted = trusted_networks(settings.trusted_proxies)
        self._destination = _open_destination(settings)
        self._clock = clock
        self._entries: list[_Entry] = []
        self._dropped = 0
        self._writing = asyncio.Lock()

    def note(self, scope: Mapping[str, Any], route: str, status: int, seconds: float) -> None:
        """Note a request; status 0: it ended without an answer."""
        if self._destination is None or route in _NOT_LOGGED:
            return
        if len(self._entries) >= MOST_LINES:
            self._dropped += 1
            return
        principal: Principal | None = scope.get("principal")
        user, token = (
            scope.get("named_user", (None, None)) if principal is None else (principal.user, principal.token_id)
        )
        client = scope.get("client")
        # Reading the clock may fail and is left to `write`: no request fails because of its line.
        entry = _Entry(
            time.perf_counter(),
            scope["request_id"],
            user,
            None if principal is None else principal.role.value,
            token,
            client[0] if client else None,
            tuple(headers.values(scope, b"x-forwarded-for")) if self._trusted else (),
            scope["method"],
            route,
            scope["path"][:_LONGEST_PATH],
            status,
            seconds,
            scope.get("of_user"),
        )
        self._entries.append(entry)

    async def write(self) -> None:
        """Write the gathered entries. Raises OSError: these are lost then, and the next write logs how many.

        When cancelled, lines that the thread has are written first, and the others kept.
        """
        async with self._writing:
            await self._write()

    async def _write(self) -> None:
        if self._destination is None or not (self._entries or self._dropped):
            return
        now, counted = self._clock.now(), time.perf_counter()
        entries, self._entries = self._entries, []
        dropped, self._dropped = self._dropped, 0
        lines = []
        try:
            for number, entry in enumerate(entries, start=1):
                lines.append(self._line(entry, now - timedelta(seconds=counted - entry.counted)))
                if number % _AT_A_TIME == 0:
                    await asyncio.sleep(0)  # let requests run
        except asyncio.CancelledError:
            self._entries, self._dropped = entries + self._entries, self._dropped + dropped
            raise
        if dropped:
            lines.append(json.dumps({"event": "access_dropped", "timestamp": rfc3339(now), "lines": dropped}))
        by_thread = asyncio.create_task(asyncio.to_thread(self._destination.write, lines))
        try:
            await asyncio.shield(by_thread)
        finally:
            await asyncio.wait({by_thread})  # the thread goes on when this task is cancelled
            if isinstance(by_thread.exception(), OSError):
                self._dropped += len(entries) + dropped

    def close(self) -> None:
        if isinstance(self._destination, _PrivateFile):
            self._destination.close()

    def _line(self, entry: _Entry, at: datetime) -> str:
        """Format a line as `json.dumps` would, in a third of the time."""
        texts = {
            "timestamp": rfc3339(at),
            "request_id": entry.request_id,
            "user": entry.user,
            "role": entry.role,
            "token": entry.token,
            "address": address_of_client(entry.peer, entry.forwarded, self._trusted),
            "method": entry.method,
            "route": entry.route,
            "path": entry.path,
        }
        if entry.of_user is not None:
            texts["of_user"] = entry.of_user
        fields = [f'"{name}": {"null" if text is None else _quoted(text)}' for name, text in texts.items()]
        ms = round(entry.seconds * 1000, 1)
        return f'{{"event": "access", {", ".join(fields)}, "status": {entry.status}, "ms": {ms}}}'


class _SharedLog:
    """Writes to stderr, as all other logs do."""

    def write(self, lines: list[str]) -> None:
        """Write as many lines at once as a pipe takes whole, so that no other output splits a line."""
        together = ""
        for line in lines:
            if together and len(together) + len(line) >= PIPE_BUF:
                sys.stderr.write(together)
                together = ""
            together += f"{line}\n"
        sys.stderr.write(together)


class _PrivateFile(RotatingFileHandler):
    """A file that only its owner can read; a full file is kept with a number, and the oldest is removed."""

    def write(self, lines: list[str]) -> None:
        record = LogRecord("", 0, "", 0, "\n".join(lines), None, None)
        if self.shouldRollover(record):
            self.doRollover()
        if self.stream is None:
            self.stream = self._open()
        self.stream.write(f"{record.msg}\n")
        self.stream.flush()

    def _open(self) -> Any:
        opened = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(opened, "a", encoding="utf-8")


def _open_destination(settings: ApiSettings) -> _SharedLog | _PrivateFile | None:
    if not settings.access_log:
        return None
    if settings.access_log == WITH_THE_LOG:
        return _SharedLog()
    path = settings.home / settings.access_log
    try:
        return _PrivateFile(path, maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT, encoding="utf-8")
    except OSError as problem:
        raise SettingsError(
            f"The access log can't be written to {path}: {problem.strerror or problem}. Set GPU_DEV_ACCESS_LOG to"
            " another file, to - for the log that all else goes to, or to nothing."
        ) from problem
