"""Signed requests to AWS's STS that prove who made them (Signature Version 4), as clients send them to us.

Nothing of what was sent is passed on as it is: it is taken apart, each part is held against a list, and the request
that goes to STS is put together anew. The signer names us in a signed header, so what was made for another server
proves nothing here, and what was made for us proves nothing there.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from reservation_core.domain.errors import ProofRefusedError

SERVER_ID_HEADER = "x-gpudev-server-id"
NONCE_HEADER = "x-gpudev-nonce"
"""Any word: signatures of one second are otherwise the same, and the second of two is taken for a replay."""
BODY = "Action=GetCallerIdentity&Version=2011-06-15"
"""The body of the POST, which nobody needs to send us."""
STS_HOST = re.compile(r"sts(?:-fips)?(?:\.[a-z]{2}(?:-[a-z]+){1,3}-[1-9])?\.amazonaws\.com(?:\.cn)?")
EARLY = timedelta(minutes=1)
"""So much the client's clock may be ahead of ours."""

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
    """For whom (`server_ids`) and where to (`hosts`) requests must be signed, and how old they may be."""

    server_ids: frozenset[str]
    hosts: frozenset[str]
    max_age: timedelta


@dataclass(frozen=True, slots=True)
class StsCall:
    """The request that goes to STS. `signature` is the same for the same proof, and for no other."""

    host: str
    method: str
    target: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes
    signature: str = field(repr=False)
    signed_at: datetime


def sts_call(method: str, url: str, headers: Mapping[str, str], rules: AwsRules, now: datetime) -> StsCall:
    """Take a signed request apart and put it together anew. Raises ProofRefusedError."""
    if not _URL.fullmatch(url):
        raise _refused("The address must be printable, without spaces.")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _refused("The address is none.") from error
    if parts.scheme != "https" or parts.netloc not in rules.hosts or parts.path not in ("", "/") or "#" in url:
        allowed = ", ".join(f"https://{host}/" for host in sorted(rules.hosts))
        raise _refused(f"It must be signed for one of {allowed}, without anything else in the address.")
    sent = _lower(headers)
    if sent.get("host", parts.netloc) != parts.netloc:
        raise _refused("Its Host header is not the host of its address.")
    if sent.get(SERVER_ID_HEADER) not in rules.server_ids:
        ours = " or ".join(sorted(rules.server_ids))
        raise _refused(f"It was not signed for this server. Sign the header X-GpuDev-Server-Id: {ours}.")
    call = _posted(parts.netloc, parts.query, sent) if method == "POST" else _presigned(parts.netloc, parts.query, sent)
    if not call.signed_at - EARLY <= now <= call.signed_at + rules.max_age:
        minutes = rules.max_age.total_seconds() / 60
        raise _refused(f"It was signed more than {minutes:g} minutes ago, or by a clock that is ahead. Sign a new one.")
    return call


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    sent = {name.lower(): value for name, value in headers.items()}
    if len(sent) != len(headers):
        raise _refused("A header stands twice in it.")
    if not all(_PRINTABLE.fullmatch(value) for value in sent.values()):
        raise _refused("A header of it is empty, too long or not printable.")
    return sent


def _posted(host: str, query: str, sent: Mapping[str, str]) -> StsCall:
    """The signature is in the header Authorization."""
    if query:
        raise _refused("A POST has nothing behind its address.")
    _only(sent, _POST_HEADERS)
    found = _AUTHORIZATION.fullmatch(sent.get("authorization", ""))
    if found is None:
        raise _refused(f"Its Authorization header is not one of {_ALGORITHM} for sts.")
    if sent.get("content-type", "application/x-www-form-urlencoded") not in _CONTENT_TYPES:
        raise _refused("Its Content-Type must be application/x-www-form-urlencoded.")
    if sent.get("content-length", str(len(BODY))) != str(len(BODY)):
        raise _refused(f"Its body must be {BODY}.")
    _check_signed(found["signed"], sent, {"x-amz-date"})
    ours = {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(BODY))}
    passed_on = {**ours, **sent, "host": host}
    return StsCall(
        host=host,
        method="POST",
        target="/",
        headers=tuple(passed_on.items()),
        body=BODY.encode(),
        signature=found["signature"],
        signed_at=_signed_at(sent.get("x-amz-date", ""), found["day"]),
    )


def _presigned(host: str, query: str, sent: Mapping[str, str]) -> StsCall:
    """The signature is in the address."""
    _only(sent, _GET_HEADERS)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=len(_PARAMETERS))
    except ValueError as error:
        raise _refused("What stands behind its address is not a presigned GetCallerIdentity.") from error
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


def _only(sent: Mapping[str, str], known: Collection[str]) -> None:
    unknown = sorted(name for name in sent.keys() - set(known) if name.isascii() and name.isprintable())
    if sent.keys() - set(known):
        raise _refused(f"It has headers that GetCallerIdentity needs none of: {', '.join(unknown)[:200]}.")


def _check_signed(signed: str, sent: Mapping[str, str], needed: set[str]) -> None:
    """Whatever says something is signed, and whatever is signed is there."""
    names = signed.split(";")
    if len(set(names)) != len(names):
        raise _refused("A header is signed twice.")
    needed = needed | {"host", SERVER_ID_HEADER} | {name for name in sent if name.startswith("x-")}
    if missing := sorted(needed - set(names)):
        raise _refused(f"These headers must be signed, too: {', '.join(missing)}.")
    if absent := sorted(set(names) - sent.keys() - {"host", "content-length", "content-type"}):
        raise _refused(f"These headers are signed, and were not sent: {', '.join(absent)}.")


def _signed_at(text: str, day: str) -> datetime:
    try:
        at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise _refused("X-Amz-Date is no time such as 20300131T235959Z.") from error
    if not re.fullmatch(r"[0-9]{8}T[0-9]{6}Z", text) or text[:8] != day:
        raise _refused("X-Amz-Date is not of the day that was signed.")
    return at


def _refused(why: str) -> ProofRefusedError:
    return ProofRefusedError(f"The signed request proves nothing here. {why}")
