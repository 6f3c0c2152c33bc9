"""Make the reference page of REST: each call, with an example that was recorded from a server.

`tests/integration/api_service/test_rest_examples.py` records `rest_examples.json` and compares it with the server.
"""

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from api_service.app import _ROUTERS
from api_service.documents import openapi

_EXAMPLES = Path(__file__).with_name("rest_examples.json")
_WIDTH = 100
_SUBJECTS = {
    "jobs": "Jobs", "queue": "The queue", "gpus": "GPUs", "nodes": "Nodes", "availability": "Free GPUs",
    "search": "Searching",
    "bookings": "Bookings", "bookings.ics": "Bookings", "maintenance": "Maintenance", "usage": "Usage",
    "simulations": "Simulations",
    "notifications": "Notifications", "login": "Signing in", "tokens": "Tokens", "users": "Users",
    "keys": "SSH keys", "ssh-certificates": "SSH keys", "secrets": "Secrets", "uploads": "Files for jobs",
    "disks": "Disks",
    "projects": "Projects", "policy": "Rules", "events": "The audit log", "dead-letters": "Dead letters",
    "pods": "Pods that the server does not know", "schedulability": "Schedulability",
    "gpu-schedulability": "Schedulability", "healthz": "Health", "readyz": "Health", "metrics": "Health",
}  # fmt: skip
_LEAD = """# REST calls

Every call with an example. [REST](rest.md) says what they have in common, and has the
[WebSockets](rest.md#websockets-into-a-job); `/docs` on a server has their fields and all answers.
Calls under `/v1` also need the header `Authorization: Bearer TOKEN`, and those with a body the header
`Content-Type: application/json`. A test records the examples from a server; `…` in them is text left out. This page is
generated: `make reference` writes it.
"""


def rest_page() -> str:
    """Every call of REST by subject. Raises KeyError for a call without an example."""
    application = FastAPI(title="GPU Dev Server", version="1")
    for router in _ROUTERS:
        application.router.routes.extend(router.routes)
    paths = openapi(application)["paths"]
    examples = json.loads(_EXAMPLES.read_text(encoding="utf-8"))
    sections: dict[str, list[str]] = {subject: [] for subject in _SUBJECTS.values()}
    for path, operations in sorted(paths.items()):
        for method, operation in operations.items():
            if "101" in operation["responses"]:
                continue  # a WebSocket has no request and answer to show; docs/reference/rest.md describes it
            call = f"{method.upper()} {path}"
            subject = _SUBJECTS[path.removeprefix("/v1").split("/")[1]]
            sections[subject] += _described(call, operation.get("summary", ""), examples[call])
    lines = [_LEAD]
    for subject, described in sections.items():
        lines += [f"## {subject}", "", *described]
    return "\n".join(lines).rstrip() + "\n"


def _described(call: str, summary: str, example: dict[str, Any]) -> Iterator[str]:
    status = HTTPStatus(example["status"])
    yield f"### `{call}`"
    yield from (
        "",
        summary if summary.endswith((".", "?")) else f"{summary}.",
        "",
        "```http",
        f"{call.partition(' ')[0]} {example['path']}",
    )
    if example["body"] is not None:
        yield from ("", _written(example["body"]))
    yield from ("```", "", "```http", f"{status.value} {status.phrase}")
    answer = example["answer"]
    if answer:
        yield from ("", answer.rstrip() if isinstance(answer, str) else _written(answer))
    yield from ("```", "")


def _written(value: Any, indent: int = 0) -> str:
    """JSON on one line where it fits, and one element a line otherwise."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(name)}: {_written(part, indent + 2)}" for name, part in value.items()]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    parts = [inner + _written(part, indent + 2) for part in value]
    return "[\n" + ",\n".join(parts) + "\n" + " " * indent + "]"
