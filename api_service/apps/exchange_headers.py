"""The headers between browsers and apps: what belongs to this server or to one connection stays here."""

from collections.abc import Iterable, Mapping
from typing import Any

from api_service.requests import headers

Headers = list[tuple[bytes, bytes]]

APP_COOKIE = "gpu_dev_app"
SECURE_APP_COOKIE = "__Host-gpu_dev_app"
"""Browsers accept a name with this prefix from one host alone, over TLS and without a domain."""

_OURS = ("gpu_dev_", "__host-gpu_dev_")
_OUR_TOKENS = b"gpudev"
_ONE_CONNECTIONS = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade"}
)
_NOT_ASKED = _ONE_CONNECTIONS | {b"expect", b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}
_NOT_ANSWERED = _ONE_CONNECTIONS | {b"cross-origin-resource-policy", b"alt-svc"}
_OUR_ANSWER = (
    # Only the app itself may show or load what it has: no other app, and no other site.
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"frame-ancestors 'self'"),
)


def request_headers(scope: Mapping[str, Any], address: str | None, scheme: str, *, upgrades: bool) -> Headers:
    """The headers that an app gets; `address` is the browser's."""
    given: Headers = scope["headers"]
    passed: Headers = []
    for name, value in given:
        if name in _NOT_ASKED or name in _named_by_connection(given):
            continue
        if name == b"authorization" and _OUR_TOKENS in value.lower():
            continue
        if name == b"cookie":
            kept = _without_ours(value)
            if kept:
                passed.append((name, kept))
            continue
        passed.append((name, value))
    if any(name == b"transfer-encoding" for name, _ in given):
        passed.append((b"transfer-encoding", b"chunked"))
    if address is not None:
        passed.append((b"x-forwarded-for", address.encode("latin-1")))
    passed.append((b"x-forwarded-proto", scheme.encode()))
    passed.append((b"x-forwarded-host", (headers.first(scope, b"host") or "").encode("latin-1")))
    if upgrades:
        return [*passed, (b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    return [*passed, (b"connection", b"close")]


def response_headers(given: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers that a browser gets of an app's answer."""
    answered = list(given)
    named = _named_by_connection(answered)
    passed: Headers = []
    for name, value in answered:
        if name in _NOT_ANSWERED or name in named:
            continue
        if name == b"set-cookie":
            cookie = _of_this_host(value)
            if cookie is not None:
                passed.append((name, cookie))
            continue
        passed.append((name, value))
    return [*passed, *_OUR_ANSWER]


def _named_by_connection(given: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The headers that a Connection header names: they are for one connection, too."""
    values = b",".join(value for name, value in given if name == b"connection")
    return frozenset(word.strip().lower() for word in values.split(b","))


def _without_ours(value: bytes) -> bytes:
    return b"; ".join(part for cookie in value.split(b";") if not _is_ours(part := cookie.strip()) and part)


def _of_this_host(value: bytes) -> bytes | None:
    """A cookie without its domain, so that other hosts don't get it; None for one that has a name of ours."""
    if _is_ours(value.strip()):
        return None
    first, *attributes = value.split(b";")
    kept = [part for part in attributes if part.partition(b"=")[0].strip().lower() != b"domain"]
    return b";".join([first, *kept])


def _is_ours(cookie: bytes) -> bool:
    return cookie.partition(b"=")[0].strip().decode("latin-1").lower().startswith(_OURS)
