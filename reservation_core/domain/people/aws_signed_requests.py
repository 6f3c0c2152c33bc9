"""Signed requests to AWS's STS that prove a caller's identity (Signature Version 4), as clients send them.

Nothing is forwarded as it was sent: the request is parsed, each part is checked against a list, and the request to STS
is built anew. A signed header names this server, so a request that was signed for another server proves nothing here,
and one for this server proves nothing elsewhere.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from reservation_core.domain.errors import ProofRefusedError

SERVER_ID_HEADER = "x-gpudev-server-id"
NONCE_HEADER = "x-gpudev-nonce"
"""Any value: equal signatures of the same second would be taken for a replay."""
BODY = "Action=GetCallerIdentity&Version=2011-06-15"
"""The body of the POST, which clients need not send."""
STS_HOST = re.compile(r"sts(?:-fips)?(?:\.[a-z]{2}(?:-[a-z]+){1,3}-[1-9])?\.amazonaws\.com(?:\.cn)?")
EARLY = timedelta(minutes=1)
"""How far the client's clock may be ahead of ours."""

_ALGORITHM = "AWS4-HMAC-SHA256"
_CREDENTIAL = r"[A-Za-z0-9]{16,128}/(?P<day>[0-9]{8})/[a-z0-9-]{1,32}/sts/aws4_request"
_SIGNED = r"[a-z0-9-]{1,64}(?:;[a-z0-9-]{1,64}){0,9}"
_SIGNATURE = r"[0-9a-f]{64}"
_AUTHORIZATION = re.compile(
    rf"{_ALGORITHM} Credential={_CREDENTIAL}, ?SignedHeaders=(?P<signed>{_SIGNED})"
    rf", ?Signature=(?P<signature>{_SIGNATURE})"
)
_PRINTABLE = re.compile(r"[ -~]{1,8192}")
_URL = re.compile(r"[!-~]{1,8192}")
_POST_HEADERS = frozenset(
    {"authorization", "content-length", "content-type", "host", "x-amz-date", "x-amz-security-token"}
    | {SERVER_ID_HEADER, NONCE_HEADER}
)
_GET_HEADERS = frozenset({"host", SERVER_ID_HEADER, NONCE_HEADER})
_CONTENT_TYPES = frozenset({"application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=utf-8"})
_PARAMETERS: Mapping[str, re.Pattern[str]] = {
    "Action": re.compile("GetCallerIdentity"),
    "Version": re.compile("2011-06-15"),
    "X-Amz-Algorithm": re.compile(_ALGORITHM),
    "X-Amz-Credential": re.compile(_CREDENTIAL),
    "X-Amz-Date": re.compile(r"[0-9]{8}T[0-9]{6}Z"),
    "X-Amz-Expires": re.compile(r"[1-9][0-9]{0,5}"),
    "X-Amz-Security-Token": _PRINTABLE,
    "X-Amz-Signature": re.compile(_SIGNATURE),
    "X-Amz-SignedHeaders": re.compile(_SIGNED),
}
_OPTIONAL = frozenset({"X-Amz-Security-Token"})


@dataclass(frozen=True, slots=True)
class AwsRules:
    """The accepted `server_ids` and `hosts` of requests, and their maximal age."""

    server_ids: frozenset[str]
    hosts: frozenset[str]
    max_age: timedelta


@dataclass(frozen=True, slots=True)
class StsCall:
    """The request to STS. `signature` identifies the proof."""

    host: str
    method: str
    target: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes
    signature: str = field(repr=False)
    signed_at: datetime


def sts_call(method: str, url: str, headers: Mapping[str, str], rules: AwsRules, now: datetime) -> StsCall:
    """Parse a signed request and build the one to STS. Raises ProofRefusedError."""
    if not _URL.fullmatch(url):
        raise _refused("The address must be printable, without spaces.")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _refused("The address is not a URL.") from error
    if parts.scheme != "https" or parts.netloc not in rules.hosts or parts.path not in ("", "/") or "#" in url:
        allowed = ", ".join(f"https://{host}/" for host in sorted(rules.hosts))
        raise _refused(f"It must be signed for one of {allowed}, without anything else in the address.")
    sent = _lower_names(headers)
    if sent.get("host", parts.netloc) != parts.netloc:
        raise _refused("Its Host header is not the host of its address.")
    if sent.get(SERVER_ID_HEADER) not in rules.server_ids:
        ours = " or ".join(sorted(rules.server_ids))
        raise _refused(f"It was not signed for this server. Sign the header X-GpuDev-Server-Id: {ours}.")
    read = _read_post if method == "POST" else _read_presigned
    call = read(parts.netloc, parts.query, sent)
    if not call.signed_at - EARLY <= now <= call.signed_at + rules.max_age:
        minutes = rules.max_age.total_seconds() / 60
        raise _refused(f"It was signed more than {minutes:g} minutes ago, or by a clock that is ahead. Sign a new one.")
    return call


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    sent = {name.lower(): value for name, value in headers.items()}
    if len(sent) != len(headers):
        raise _refused("It has the same header twice.")
    if not all(_PRINTABLE.fullmatch(value) for value in sent.values()):
        raise _refused("One of its headers is empty, too long or not printable.")
    return sent


def _read_post(host: str, query: str, sent: Mapping[str, str]) -> StsCall:
    """Read a POST, whose signature is in the header Authorization."""
    if query:
        raise _refused("The address of a POST must have no query.")
    _refuse_unknown(sent, _POST_HEADERS)
    authorization = _AUTHORIZATION.fullmatch(sent.get("authorization", ""))
    if authorization is None:
        raise _refused(f"Its Authorization header is not one of {_ALGORITHM} for sts.")
    if sent.get("content-type", "application/x-www-form-urlencoded") not in _CONTENT_TYPES:
        raise _refused("Its Content-Type must be application/x-www-form-urlencoded.")
    if sent.get("content-length", str(len(BODY))) != str(len(BODY)):
        raise _refused(f"Its body must be {BODY}.")
    _check_signed(authorization["signed"], sent, {"x-amz-date"})
    ours = {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(BODY))}
    return StsCall(
        host=host,
        method="POST",
        target="/",
        headers=tuple({**ours, **sent, "host": host}.items()),
        body=BODY.encode(),
        signature=authorization["signature"],
        signed_at=_signed_at(sent.get("x-amz-date", ""), authorization["day"]),
    )


def _read_presigned(host: str, query: str, sent: Mapping[str, str]) -> StsCall:
    """Read a GET, whose signature is in the address."""
    _refuse_unknown(sent, _GET_HEADERS)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=len(_PARAMETERS))
    except ValueError as error:
        raise _refused("The query of its address is not a presigned GetCallerIdentity.") from error
    given = dict(pairs)
    if len(given) != len(pairs) or not _PARAMETERS.keys() - _OPTIONAL <= given.keys() <= _PARAMETERS.keys():
        raise _refused("A presigned GetCallerIdentity has each of its parameters once, and no others.")
    for name, value in given.items():
        if not _PARAMETERS[name].fullmatch(value):
            raise _refused(f"{name} is not what a presigned GetCallerIdentity has.")
    _check_signed(given["X-Amz-SignedHeaders"], sent, set())
    credential = _PARAMETERS["X-Amz-Credential"].fullmatch(given["X-Amz-Credential"])
    target = "/?" + "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(given.items()))
    return StsCall(
        host=host,
        method="GET",
        target=target,
        headers=tuple({**sent, "host": host}.items()),
        body=b"",
        signature=given["X-Amz-Signature"],
        signed_at=_signed_at(given["X-Amz-Date"], "" if credential is None else credential["day"]),
    )


def _refuse_unknown(sent: Mapping[str, str], known: Collection[str]) -> None:
    if unknown := sent.keys() - set(known):
        names = ", ".join(sorted(name for name in unknown if name.isascii() and name.isprintable()))
        raise _refused(f"It has headers that GetCallerIdentity does not need: {names[:200]}.")


def _check_signed(signed: str, sent: Mapping[str, str], needed: set[str]) -> None:
    """Check that all needed headers are signed, and all signed headers were sent."""
    names = signed.split(";")
    if len(set(names)) != len(names):
        raise _refused("A header is signed twice.")
    needed = needed | {"host", SERVER_ID_HEADER} | {name for name in sent if name.startswith("x-")}
    if missing := sorted(needed - set(names)):
        raise _refused(f"These headers must be signed, too: {', '.join(missing)}.")
    if absent := sorted(set(names) - sent.keys() - {"host", "content-length", "content-type"}):
        raise _refused(f"These headers are signed, but were not sent: {', '.join(absent)}.")


def _signed_at(text: str, day: str) -> datetime:
    try:
        at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise _refused("X-Amz-Date is no time such as 20300131T235959Z.") from error
    if not re.fullmatch(r"[0-9]{8}T[0-9]{6}Z", text) or text[:8] != day:
        raise _refused("X-Amz-Date is not of the day that was signed.")
    return at


def _refused(why: str) -> ProofRefusedError:
    return ProofRefusedError(f"The signed request is not accepted. {why}")
