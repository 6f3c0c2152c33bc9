"""Those who vouch for people, on this machine: an STS that checks signatures, an issuer and its keys, the way there.

Real HTTP over real TLS; only names are led to this machine.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpcore
import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from reservation_core.runtime.settings.auth import AuthSettings
from tests.network.receivers import Receiver, certificates, receiving

STS = "sts.amazonaws.com"
ISSUER = "https://issuer.example"
SERVER = "https://gpus.example.org"
ACCOUNT = "123456789012"
RULES = f"""
[[issuer]]
url = "{ISSUER}"
audiences = ["{SERVER}"]

[[oidc]]
issuer = "{ISSUER}"
email = "*@lab.example"
user = "{{email_name}}"
create = true

[[aws]]
account = "{ACCOUNT}"
iam_role = "gpu-*"
user = "{{session}}"
create = true

[[aws]]
account = "{ACCOUNT}"
iam_user = "root-of-gpus"
user = "root"
role = "admin"
"""


@dataclass
class Network(httpcore.AsyncNetworkBackend):
    """Leads names to ports of this machine, and notes who was looked for."""

    ports: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect, if somebody has that name."""
        self.asked.append((host, port))
        if host not in self.ports:
            raise httpcore.ConnectError(f"{host} is nobody")
        return await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.ports[host], timeout)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@dataclass
class Sts:
    """Checks Signature Version 4 as AWS does, over what really arrived."""

    receiver: Receiver
    secrets: dict[str, str] = field(default_factory=dict)
    arns: dict[str, str] = field(default_factory=dict)

    def person(self, key: str, arn: str) -> dict[str, str]:
        """The environment of somebody with credentials."""
        self.secrets[key], self.arns[key] = f"secret-of-{key}", arn
        return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": self.secrets[key], "AWS_SESSION_TOKEN": "session"}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """As STS answers to who accepts JSON."""
        arn = _caller(request, await request.text(), self.secrets, self.arns)
        if arn is None:
            return web.json_response({"Error": {"Code": "SignatureDoesNotMatch"}}, status=403)
        who = {"Account": arn.split(":")[4], "Arn": arn, "UserId": "AROAEXAMPLE"}
        return web.json_response({"GetCallerIdentityResponse": {"GetCallerIdentityResult": who}})


def _caller(request: web.Request, body: str, secrets: Mapping[str, str], arns: Mapping[str, str]) -> str | None:
    query = dict(parse_qsl(request.query_string, keep_blank_values=True))
    if "X-Amz-Signature" in query:
        signature, credential = query.pop("X-Amz-Signature"), query["X-Amz-Credential"]
        signed, date, action = query["X-Amz-SignedHeaders"], query["X-Amz-Date"], query["Action"]
    else:
        words = request.headers["Authorization"].split(" ", 1)[1].replace(" ", "").split(",")
        parts = dict(word.split("=", 1) for word in words)
        signature, credential, signed = parts["Signature"], parts["Credential"], parts["SignedHeaders"]
        date, action = request.headers["X-Amz-Date"], dict(parse_qsl(body))["Action"]
    key, day, region, service, _ = credential.split("/")
    if key not in secrets or action != "GetCallerIdentity":
        return None
    canonical = "\n".join(
        [
            request.method,
            "/",
            "&".join(sorted(f"{quote(n, safe='-_.~')}={quote(v, safe='-_.~')}" for n, v in query.items())),
            *(f"{name}:{request.headers[name].strip()}" for name in signed.split(";")),
            "",
            signed,
            hashlib.sha256(body.encode()).hexdigest(),
        ]
    )
    scope = f"{day}/{region}/{service}/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    step = f"AWS4{secrets[key]}".encode()
    for part in (day, region, service, "aws4_request", to_sign):
        step = hmac.new(step, part.encode(), hashlib.sha256).digest()
    return arns[key] if hmac.compare_digest(step.hex(), signature) else None


@dataclass
class Issuer:
    """An OpenID Connect issuer. `shown` are its keys by name; `fetches` counts how often they were asked for."""

    receiver: Receiver
    rsa_key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    ec_key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    fetches: int = 0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    client_secret: str | None = None

    def __post_init__(self) -> None:
        self.shown["rsa-1"] = {**RSAAlgorithm.to_jwk(self.rsa_key.public_key(), as_dict=True), "alg": "RS256"}
        self.shown["ec-1"] = ECAlgorithm.to_jwk(self.ec_key.public_key(), as_dict=True)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Its discovery document, and its keys."""
        if request.path == "/.well-known/openid-configuration":
            endpoints = {f"{name}_endpoint": f"{ISSUER}/{name}" for name in ("authorization", "token")}
            return web.json_response({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys", **endpoints})
        if request.path == "/token":
            return await self._exchanged(request)
        self.fetches += 1
        return web.json_response({"keys": [{**key, "kid": kid, "use": "sig"} for kid, key in self.shown.items()]})

    def visited(self, url: str) -> str:
        """What its page gives to ada, who came there by this address: a code."""
        assert url.startswith(f"{ISSUER}/authorization?")
        asked = dict(parse_qsl(urlsplit(url).query))
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return code

    async def _exchanged(self, request: web.Request) -> web.StreamResponse:
        """A code for an ID token, once, to whom it was given and who knows what was hashed."""
        sent = dict(parse_qsl(await request.text()))
        asked = self.codes.pop(sent.get("code", ""), None)
        hashed = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
        known = f"{quote(sent.get('client_id', ''), safe='')}:{self.client_secret}"
        basic = f"Basic {base64.b64encode(known.encode()).decode()}"
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != sent.get("redirect_uri")
            or (self.client_secret is not None and request.headers.get("Authorization") != basic)
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        claims = self.claims(datetime.now(UTC), aud=asked["client_id"], nonce=asked["nonce"])
        return web.json_response({"id_token": self.token(claims), "token_type": "Bearer", "access_token": "x"})

    def claims(self, now: datetime, **more: Any) -> dict[str, Any]:
        """Those of a good token for ada."""
        good = {
            "iss": ISSUER,
            "aud": SERVER,
            "sub": "1001",
            "email": "ada@lab.example",
            "email_verified": True,
            "iat": int(now.timestamp()),
            "exp": int((now + timedelta(minutes=30)).timestamp()),
        }
        return {name: value for name, value in {**good, **more}.items() if value is not None}

    def token(
        self, claims: Mapping[str, Any], *, kid: str | None = "rsa-1", key: Any = None, alg: str = "RS256"
    ) -> str:
        """Signed by the issuer, or by whoever has `key`."""
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(dict(claims), key or self.rsa_key, algorithm=alg, headers=headers)


@dataclass
class SignInWorld:
    """All of it, and settings that trust it."""

    network: Network
    sts: Sts
    issuer: Issuer
    settings: AuthSettings


@asynccontextmanager
async def sign_in_world(folder: Path, rules: str = RULES) -> AsyncIterator[SignInWorld]:
    """Running while the block runs."""
    for name in ("sts", "issuer"):
        (folder / name).mkdir()
    aws, other = certificates(folder / "sts", STS), certificates(folder / "issuer", urlsplit(ISSUER).netloc)
    trusted = folder / "trusted.pem"
    trusted.write_bytes(aws.ca_file.read_bytes() + other.ca_file.read_bytes())
    file = folder / "sign-in.toml"
    file.write_text(rules)
    settings = AuthSettings(file=file, server_ids=(SERVER,), ca_file=trusted, timeout_s=30, keys_every_s=3600)
    async with receiving(aws.server) as at_aws, receiving(other.server) as at_issuer:
        world = SignInWorld(Network(), Sts(at_aws), Issuer(at_issuer), settings)
        at_aws.answer, at_issuer.answer = world.sts.answer, world.issuer.answer
        world.network.ports = {STS: at_aws.port, urlsplit(ISSUER).netloc: at_issuer.port}
        yield world


def unsigned(claims: Mapping[str, Any], header: Mapping[str, Any], signature: bytes = b"") -> str:
    """A token put together by hand."""
    parts = (json.dumps(header).encode(), json.dumps(dict(claims)).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def trusting(path: Path) -> ssl.SSLContext:
    """A client's context."""
    return ssl.create_default_context(cafile=path)
