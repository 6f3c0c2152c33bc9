"""Examples of REST for the reference: recorded from a server, kept in `tools/rest_examples.json`, compared by shape."""

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx

FILE = Path(__file__).parents[3] / "tools" / "rest_examples.json"
RECORDS = "GPU_DEV_TESTS_RECORD" in os.environ
_BEGINNING = datetime.fromisoformat("2030-01-07T09:00:00+00:00")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T)\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_CALENDAR_TIME = re.compile(r"\d{8}T\d{6}Z")
_ID = re.compile(r"\b(job|bkg|ser|mnt|ntg|tok|tst|code|key)-[0-9a-z]{8,}\b")
_SECRET = re.compile(r"\b(gpudev_|whsec_|feed_)[\w+/=-]{16,}|\beyJ[\w.-]{40,}")
_KEY = re.compile(r"\bAAAA[\w+/]{16,}=*")
_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_LINES = 8
_BYTES = "application/octet-stream"


@dataclass
class Recorder:
    """Calls a server and keeps what was asked and answered, as `METHOD /path` with the names of its parts."""

    now: datetime
    address: str
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)

    async def call(
        self,
        client: httpx.AsyncClient,
        call: str,
        body: Any = None,
        *,
        query: str = "",
        status: HTTPStatus | None = None,
        **names: str,
    ) -> Any:
        """The answer, which has to be a good one, or of this status; the first of a call is its example."""
        method, template = call.split()
        path = template.format(**names) + query
        if isinstance(body, bytes):
            headers = {"Content-Type": _BYTES}
            answer = await client.request(method, path, content=body, headers=headers)
            body = "…"
        else:
            answer = await client.request(method, path, json=body)
        assert answer.is_success if status is None else answer.status_code == status, (
            f"{call}: {answer.status_code} {answer.text}"
        )
        example = {
            "path": path,
            "body": body,
            "status": answer.status_code,
            "answer": _said(answer),
        }
        self.found.setdefault(call, example)
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def tidy(self) -> dict[str, Any]:
        """The examples with the same ids, times and secrets whenever they are recorded."""
        text = json.dumps(self.found).replace(self.address, "https://chat.example.org")
        text = _TIME.sub(self._moved, text)
        text = _CALENDAR_TIME.sub(self._moved_in_a_calendar, text)
        text = _SECRET.sub(lambda found: f"{found[1] or 'eyJhbGciOi'}…", text)
        text = _KEY.sub("AAAA…", text)
        tidied: dict[str, Any] = json.loads(_ID.sub(self._renamed, text))
        return dict(sorted(tidied.items(), key=lambda item: item[0].split()[::-1]))

    def _moved(self, found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[0]) - self.now + _BEGINNING
        form = "%Y-%m-%dT%H:%M:%S" + (".%f" if found[2] else "")
        text = at.strftime(form)
        digits = len(found[2] or "") - 1
        return text[: len(text) - (6 - digits) if 0 < digits < 6 else None] + found[3]

    def _moved_in_a_calendar(self, found: re.Match[str]) -> str:
        at = datetime.strptime(found[0] + "+0000", "%Y%m%dT%H%M%SZ%z") - self.now + _BEGINNING
        return at.strftime("%Y%m%dT%H%M%SZ")

    def _renamed(self, found: re.Match[str]) -> str:
        if found[0] not in self._ids:
            digest = hashlib.sha256(str(len(self._ids)).encode()).digest()
            self._ids[found[0]] = f"{found[1]}-{''.join(_LETTERS[byte % 32] for byte in digest[:8])}"
        return self._ids[found[0]]


def whole_hour(now: datetime) -> datetime:
    """The hour in which a recording begins, so that times are moved by whole hours."""
    return now.replace(minute=0, second=0, microsecond=0)


def _said(answer: httpx.Response) -> Any:
    if "json" in answer.headers.get("content-type", ""):
        return answer.json()
    if answer.headers.get("content-type") == _BYTES:
        return "…"
    lines = answer.text.replace("\r\n ", "").splitlines()  # lines of calendars are broken anywhere
    return "\n".join(lines if len(lines) <= _LINES * 3 else [*lines[:_LINES], "…"])


def shape(value: Any) -> Any:
    """The names and kinds in a value, without what differs from one time to the next."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def fits(recorded: Any, found: Any) -> bool:
    """Whether two shapes are one: what is null or empty in either fits anything."""
    if recorded in ("NoneType", []) or found in ("NoneType", []):
        return True
    if isinstance(recorded, dict) and isinstance(found, dict):
        return recorded.keys() == found.keys() and all(fits(recorded[name], found[name]) for name in recorded)
    if isinstance(recorded, list) and isinstance(found, list):
        return fits(recorded[0], found[0])
    return {recorded, found} <= {"int", "float"} or recorded == found
