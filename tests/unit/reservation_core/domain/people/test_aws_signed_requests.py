"""Whatever is sent as a signed request, what goes out goes to STS and says GetCallerIdentity; or nothing goes out."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.contracts.sign_in import AwsProof, KubernetesProof, OidcProof
from reservation_core.domain.errors import ProofRefusedError
from reservation_core.domain.people.aws_signed_requests import AwsRules, StsCall, sts_call
from reservation_core.domain.statuses import SignInMethod

NOW = datetime(2030, 1, 31, 12, 0, 30, tzinfo=UTC)
HOST, SERVER = "sts.amazonaws.com", "https://gpus.example.org"
RULES = AwsRules(frozenset({SERVER}), frozenset({HOST}), timedelta(minutes=5))
SCOPE = "AKIAEXAMPLEOFADA/20300131/us-east-1/sts/aws4_request"
SIGNED = "host;x-amz-date;x-gpudev-server-id"
SIGNATURE = "0123456789abcdef" * 4
HEADERS = {
    "Host": HOST,
    "X-Amz-Date": "20300131T120000Z",
    "X-GpuDev-Server-Id": SERVER,
    "Authorization": f"AWS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders={SIGNED}, Signature={SIGNATURE}",
}
PRESIGNED = (
    f"https://{HOST}/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm=AWS4-HMAC-SHA256"
    f"&X-Amz-Credential={SCOPE.replace('/', '%2F')}&X-Amz-Date=20300131T120000Z&X-Amz-Expires=60"
    f"&X-Amz-SignedHeaders=host%3Bx-gpudev-server-id&X-Amz-Signature={SIGNATURE}"
)


def holds(call: StsCall) -> None:
    """What must be so of every request that goes out."""
    assert call.host == HOST
    headers = dict(call.headers)
    assert headers["host"] == HOST
    assert headers["x-gpudev-server-id"] == SERVER
    assert len(headers) == len(call.headers)
    assert all(name == name.lower() and "\r" not in value and "\n" not in value for name, value in call.headers)
    if call.method == "POST":
        assert (call.target, call.body) == ("/", b"Action=GetCallerIdentity&Version=2011-06-15")
        signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    else:
        assert (call.method, call.body, call.target[:2]) == ("GET", b"", "/?")
        query = parse_qs(call.target[2:], strict_parsing=True, keep_blank_values=True)
        assert all(len(values) == 1 for values in query.values())
        assert query["Action"] == ["GetCallerIdentity"]
        signed = query["X-Amz-SignedHeaders"][0].split(";")
    assert {"host", "x-gpudev-server-id"} <= set(signed)
    assert timedelta(minutes=-1) <= NOW - call.signed_at <= timedelta(minutes=5)


def test_both_forms_go_through() -> None:
    holds(sts_call("POST", f"https://{HOST}/", HEADERS, RULES, NOW))
    holds(sts_call("POST", f"https://{HOST}", HEADERS, RULES, NOW))
    holds(sts_call("GET", PRESIGNED, {"x-gpudev-server-id": SERVER}, RULES, NOW))


@pytest.mark.parametrize(("seconds", "good"), [(-61, False), (-59, True), (299, True), (301, False)])
def test_it_has_its_time(seconds: int, good: bool) -> None:
    now = datetime(2030, 1, 31, 12, tzinfo=UTC) + timedelta(seconds=seconds)
    try:
        sts_call("POST", f"https://{HOST}/", HEADERS, RULES, now)
    except ProofRefusedError:
        assert not good
    else:
        assert good


PIECES = st.sampled_from(
    ["", "@", ":8443", "/", "//", "\\", "#", "?", "&", "=", ";", "%00", "%0d%0a", "\r\n", "\t", " ", "\x00", "é", "..",
     "evil.example", HOST, SERVER, "Action=AssumeRole", "X-Amz-Expires=1", SIGNED, SIGNATURE, "host", "x-amz-target"]
)  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn, text: str) -> str:
    """A text with something put into it, or taken out, here and there."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + draw(PIECES) + text[end:]
    return text


@given(
    st.sampled_from(["GET", "POST"]),
    st.sampled_from([f"https://{HOST}/", PRESIGNED]).flatmap(spoilt),
    st.dictionaries(st.sampled_from([*HEADERS, "host", "x-amz-target", "Content-Type"]), PIECES, max_size=2),
    st.sampled_from([*HEADERS]).flatmap(lambda name: st.tuples(st.just(name), spoilt(HEADERS[name]))),
)
def test_whatever_is_sent(method: str, url: str, more: dict[str, str], one: tuple[str, str]) -> None:
    given_headers = HEADERS if method == "POST" else {"X-GpuDev-Server-Id": SERVER}
    changed = {name: value for name, value in [one] if name in given_headers}
    try:
        call = sts_call(method, url, {**given_headers, **changed, **more}, RULES, NOW)
    except ProofRefusedError:
        return
    holds(call)


def test_proofs_are_not_shown() -> None:
    secret = "c2VjcmV0"
    proofs = (
        AwsProof(method=SignInMethod.AWS, http_method="GET", url=f"https://{secret}", headers={"a": secret}),
        OidcProof(method=SignInMethod.OIDC, id_token=f"{secret}.a.b"),
        KubernetesProof(method=SignInMethod.KUBERNETES, token=f"{secret}.a.b"),
    )
    for proof in proofs:
        assert secret not in repr(proof)
    call = sts_call("POST", f"https://{HOST}/", HEADERS, RULES, NOW)
    assert SIGNATURE not in repr(call)
