"""Where notices arrive in tests: a real HTTP server and a real mail server on this machine."""

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import Any

from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    """One POST: where to, its headers in lower case, and its body."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)

    @property
    def delivery(self) -> str:
        """The notice's id."""
        return self.headers["x-gpu-dev-delivery"]


@dataclass
class Receiver:
    """An HTTP server that answers with `statuses` one after the other and then with 204, or as `answer` does."""

    port: int = 0
    scheme: str = "http"
    got: list[Received] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    answer: Answer | None = None

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        """An address of it."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Note what came, and answer."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append(Received(request.path_qs, headers, await request.read()))
        if self.answer is not None:
            return await self.answer(request)
        return web.Response(status=self.statuses.pop(0) if self.statuses else 204)


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """A receiver while the block runs."""
    receiver = Receiver(scheme="http" if tls is None else "https")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        await runner.cleanup()


@dataclass
class MailBox:
    """A mail server that answers to recipients and to messages with these lines (250 by default)."""

    port: int = 0
    mails: list[Message] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    rcpt: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        """A recipient."""
        line = self.rcpt.pop(0) if self.rcpt else "250 fine"
        if line.startswith("2"):
            envelope.rcpt_tos.append(address)
        return line

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        """A message."""
        line = self.data.pop(0) if self.data else "250 fine"
        if line.startswith("2"):
            self.raw.append(envelope.content)
            self.mails.append(message_from_bytes(envelope.content, policy=default))
            self.recipients.append(list(envelope.rcpt_tos))
        return line

    def authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        """Admit clients that know the password."""
        self.users.append(data.login.decode())
        return AuthResult(success=data.password == b"hunter2", handled=False)


@asynccontextmanager
async def mail_server(tls: ssl.SSLContext | None = None, *, starttls: bool = False) -> AsyncIterator[MailBox]:
    """A mail server while the block runs: in the clear, with TLS from the start, or with STARTTLS and a password."""
    box = MailBox()

    def session() -> SMTP:
        given = {"tls_context": tls, "require_starttls": True, "authenticator": box.authenticate} if starttls else {}
        return SMTP(box, hostname="mx.example", auth_required=starttls, **given)

    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0, ssl=None if starttls else tls)
    box.port = server.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        server.close()
        await server.wait_closed()


def documented_check() -> Callable[..., bool]:
    """`verified(secret, header, body)` as the guide tells receivers to write it."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "notifications.md").read_text()
    names: dict[str, Any] = {}
    exec(guide.split("```python\n")[1].split("```")[0], names)
    check: Callable[..., bool] = names["verified"]
    return check


@dataclass(frozen=True)
class Certificates:
    """A certificate authority of the test's own, and a server's context that it has signed for `name`."""

    ca_file: Path
    server: ssl.SSLContext


def certificates(folder: Path, name: str = "localhost") -> Certificates:
    """Made with the openssl program."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return Certificates(cert, context)
