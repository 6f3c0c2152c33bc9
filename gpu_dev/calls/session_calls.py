"""Ways into running jobs over REST: programs, ports, SSH and apps."""

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from gpu_dev.sessions.program_wire import SUBPROTOCOL, Size
from gpu_dev.wire.base import Page
from gpu_dev.wire.sessions import AppTicketMake, AppTicketOut, JobTerminal, SshCertificateIssue, SshCertificateOut

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from gpu_dev.sessions.remote_program import RemoteProgram

_KIND = re.compile(r"[A-Za-z0-9._+-]{1,64}")


class SessionCalls(Calls):
    """Streams are WebSockets, used in an event loop; `rank` is the pod of a job on several nodes."""

    async def start(
        self, job_id: str, command: Sequence[str] = (), *, terminal: Size | None = None, rank: int = 0
    ) -> "RemoteProgram":
        """Start a program in a job: the login shell without a command."""
        params = {"command": list(command), "rank": rank, **_terminal(terminal)}
        return await self._program(job_id, params)

    async def attach(self, job_id: str, size: Size, *, rank: int = 0, name: str | None = None) -> "RemoteProgram":
        """Join the terminal of a name, or one's own newest that the job has kept, or the newest."""
        named = {} if name is None else {"terminal": name}
        params = {"attach": "true", "rank": rank, **named, **_terminal(size)}
        return await self._program(job_id, params)

    async def _program(self, job_id: str, params: dict[str, Any]) -> "RemoteProgram":
        from gpu_dev.sessions.remote_program import RemoteProgram

        return RemoteProgram(await self._opened(_path(job_id, "exec"), params, SUBPROTOCOL))

    def terminals(self, job_id: str, *, rank: int = 0) -> list[JobTerminal]:
        """The terminals that a job has kept, newest first."""
        return list(self._items(Page[JobTerminal], _path(job_id, "terminals"), {"rank": rank}))

    async def connect(self, job_id: str, port: int, *, rank: int = 0) -> "ClientConnection":
        """Connect to a port in a job: messages of bytes, of which an empty one ends a direction."""
        return await self._opened(_path(job_id, f"forward/{port}"), {"rank": rank})

    async def ssh(self, job: str) -> "ClientConnection":
        """Connect to the SSH server for a job with this id or name: messages of bytes."""
        return await self._opened("/v1/ssh", {"job": job})

    async def _opened(self, path: str, params: dict[str, Any], subprotocol: str | None = None) -> "ClientConnection":
        # Most calls of sessions are none of streams, which take long to import.
        from gpu_dev.server.web_sockets import open_web_socket

        return await open_web_socket(self._exchange, path, params, subprotocol)

    def certificate(self, public_key: str) -> SshCertificateOut:
        """A certificate for a public key, with which SSH lets its owner into jobs for an hour."""
        return self._post(SshCertificateOut, "/v1/ssh-certificates", SshCertificateIssue(public_key=public_key))

    def app_address(self, job_id: str, port: int) -> str:
        """An address that lets one browser into the web application at a port of a job, once and soon."""
        return self._post(AppTicketOut, _path(job_id, "app-tickets"), AppTicketMake(port=port)).url


def _terminal(size: Size | None) -> dict[str, Any]:
    if size is None:
        return {}
    kind = os.environ.get("TERM", "")
    named = {"term": kind} if _KIND.fullmatch(kind) else {}
    return {"tty": "true", "columns": size.columns, "rows": size.rows, **named}


def _path(job_id: str, way: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}/{way}"
