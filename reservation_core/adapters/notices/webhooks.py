"""Notifications as HTTP POSTs: signed JSON for webhooks, `{"text": …}` for Slack-compatible ones.

One request, without redirects, cookies or a proxy; only the answer's status counts.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore

from reservation_core.adapters.notices.guarded_network import GuardedNetwork, Resolve, resolve
from reservation_core.adapters.notices.signing import DELIVERY_HEADER, SIGNATURE_HEADER, signature
from reservation_core.contracts.notices import NoticeBody, ReservationInNotice
from reservation_core.domain.network.egress import EgressRules
from reservation_core.domain.notices.messages import Notice
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.notices import Destination, NotDeliveredError, UndeliverableError

_AGENT = "gpu-dev-server"
_LARGEST_ANSWER = 64 * 1024
_COMES_BACK = frozenset({408, 409, 425, 429})
"""Temporary errors below 500."""


@dataclass(frozen=True, slots=True)
class PostRules:
    """Allowed addresses, the time limit including the connection, and trusted authorities."""

    egress: EgressRules
    timeout_s: float
    tls: ssl.SSLContext
    resolve: Resolve = resolve


class WebhookSender:
    """See ports.people.notices.NoticeSender: signed JSON."""

    def __init__(self, rules: PostRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    async def send(self, to: Destination, notice: Notice) -> None:
        """POST a notification once. Raises NotDeliveredError, UndeliverableError."""
        body = webhook_body(notice)
        headers = {DELIVERY_HEADER: notice.id}
        if to.secret is not None:
            headers[SIGNATURE_HEADER] = signature(to.secret, int(self._clock.now().timestamp()), body)
        await _post(self._rules, to.target.address, headers, body)


class SlackSender:
    """See ports.people.notices.NoticeSender: JSON for Slack, Mattermost, Rocket.Chat and compatible servers."""

    def __init__(self, rules: PostRules) -> None:
        self._rules = rules

    async def send(self, to: Destination, notice: Notice) -> None:
        """POST a notification once. Raises NotDeliveredError, UndeliverableError."""
        await _post(self._rules, to.target.address, {DELIVERY_HEADER: notice.id}, slack_body(notice))


def webhook_body(notice: Notice) -> bytes:
    """The JSON that a webhook receives."""
    about = notice.about
    reservation = None if about is None else ReservationInNotice.model_validate(about, from_attributes=True)
    body = NoticeBody(
        id=notice.id,
        kind=notice.kind,
        at=notice.at,
        user=notice.user,
        subject=notice.subject,
        text=notice.text,
        reservation=reservation,
    )
    return body.model_dump_json().encode()


def slack_body(notice: Notice) -> bytes:
    """The JSON for Slack, with `&`, `<` and `>` escaped: a job's name must not mention a channel or forge a link."""
    text = f"{notice.subject}\n{notice.text}"
    return json.dumps({"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}).encode()


async def _post(rules: PostRules, url: str, headers: Mapping[str, str], body: bytes) -> None:
    parts = urlsplit(url)
    all_headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "User-Agent": _AGENT,
        "Connection": "close",
        **headers,
    }
    network = GuardedNetwork(rules.egress, tls=parts.scheme.lower() == "https", resolve=rules.resolve)
    try:
        # The timeout covers the whole answer: a server may send one byte a second.
        async with (
            asyncio.timeout(rules.timeout_s),
            httpcore.AsyncConnectionPool(
                ssl_context=rules.tls, network_backend=network, retries=0, max_connections=1
            ) as pool,
            pool.stream("POST", url, headers=list(all_headers.items()), content=body) as answer,
        ):
            status = answer.status
            await _read(answer)
    except TimeoutError as error:
        raise NotDeliveredError(f"It did not answer within {rules.timeout_s:g} s.") from error
    except (httpcore.ConnectError, httpcore.ConnectTimeout, ssl.SSLError) as error:
        raise NotDeliveredError(f"No connection could be made: {_describe(error)}.") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
        raise NotDeliveredError(f"The connection broke: {type(error).__name__}.") from error
    except (httpcore.UnsupportedProtocol, UnicodeError, ValueError) as error:
        raise UndeliverableError("The address is not a valid URL. Remove it and add the right one.") from error
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise UndeliverableError(
            f"It answered {status}, a redirect; these are not followed. Use the address it points to."
        )
    if 400 <= status < 500 and status not in _COMES_BACK:
        raise UndeliverableError(f"It refused the notification with status {status}.")
    raise NotDeliveredError(f"It answered with status {status}.")


async def _read(answer: httpcore.Response) -> None:
    """Read the answer up to a bound, so that the server can finish."""
    size = 0
    async for chunk in answer.aiter_stream():
        size += len(chunk)
        if size > _LARGEST_ANSWER:
            return


def _describe(error: Exception) -> str:
    """Describe an error without addresses: a target's owner must not learn about our network.

    A missing host, a refused connection and a forbidden address have the same text.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return "TLS failed"
        cause = cause.__cause__ or cause.__context__
    return (
        "nothing answers there, or notifications may not go there. They go to public addresses over https, and to"
        " what an administrator lists in GPU_DEV_NOTICES__ALLOW"
    )
