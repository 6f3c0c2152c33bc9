"""The cookies of the pages: the session, a notice for the next page, and the time zones of user and browser."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from reservation_core.domain.wall_times import WallTimeError
from reservation_core.domain.wall_times import zone_of as zone_called

_NOTICE = "gpu_dev_told"
_DONE, _WARNS = "+", "!"
_ZONE = "gpu_dev_zone"
_BROWSER_ZONE = "gpu_dev_browser_zone"
"""Set by scripts/zone.js."""
_SESSION = "gpu_dev_session"
_SECURE_SESSION = "__Host-gpu_dev_session"
_SIGN_IN = "gpu_dev_sign_in"
_SECURE_SIGN_IN = "__Host-gpu_dev_sign_in"
_MAX_NOTICE = 500
_MAX_COOKIE = 3000
_NOTICE_S = 60
ZONE_S = 86_400 * 365


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the next page; `warns`: not all that was asked for was done."""

    words: str
    warns: bool


@dataclass(frozen=True, slots=True)
class Cookies:
    """The cookies of one request; `secure`: the browser uses TLS."""

    secure: bool

    @classmethod
    def of(cls, request: Request, public_url: str | None) -> "Cookies":
        """Trust a proxy's word on TLS: a lie only keeps the sender's browser from sending the cookie."""
        if public_url is not None:
            return cls(public_url.startswith("https:"))
        forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip()
        return cls("https" in (request.url.scheme, forwarded))

    def would_be_dropped(self, request: Request) -> bool:
        """Whether the browser drops cookies for TLS, as far as can be seen."""
        forwarded = request.headers.get("x-forwarded-proto", "")
        here = request.url.hostname in ("localhost", "127.0.0.1", "::1")
        return self.secure and not here and request.url.scheme == "http" and "https" not in forwarded

    @property
    def _session_name(self) -> str:
        # Browsers accept a name with this prefix from this host alone, over TLS and without a domain.
        return _SECURE_SESSION if self.secure else _SESSION

    def session(self, request: Request) -> str | None:
        """The session's secret."""
        return request.cookies.get(self._session_name)

    def keep_session(self, response: Response, secret: str, until: datetime) -> None:
        response.set_cookie(
            self._session_name, secret, expires=until, path="/", secure=self.secure, httponly=True, samesite="lax"
        )

    def drop_session(self, response: Response) -> None:
        response.delete_cookie(self._session_name, path="/", secure=self.secure, httponly=True, samesite="lax")

    @property
    def _sign_in_name(self) -> str:
        return _SECURE_SIGN_IN if self.secure else _SIGN_IN

    def sign_in(self, request: Request) -> str | None:
        """The state of a sign-in at the identity provider."""
        return request.cookies.get(self._sign_in_name)

    def keep_sign_in(self, response: Response, kept: str, for_s: int) -> None:
        # Lax: it must be sent when the issuer's page leads back by a link.
        response.set_cookie(
            self._sign_in_name, kept, max_age=for_s, path="/", secure=self.secure, httponly=True, samesite="lax"
        )

    def drop_sign_in(self, response: Response) -> None:
        response.delete_cookie(self._sign_in_name, path="/", secure=self.secure, httponly=True, samesite="lax")

    def keep_notice(self, response: Response, notice: Notice) -> None:
        """Keep a sentence for the next page; cut where a cookie has no room for it."""
        kept = f"{_WARNS if notice.warns else _DONE}{notice.words[:_MAX_NOTICE]}"
        while len(quote(kept)) > _MAX_COOKIE:
            kept = kept[:-1]
        response.set_cookie(
            _NOTICE,
            quote(kept),
            max_age=_NOTICE_S,
            path="/",
            secure=self.secure,
            httponly=True,
            samesite="lax",
        )

    def notice(self, request: Request) -> Notice | None:
        """The sentence for this page."""
        given = unquote(request.cookies.get(_NOTICE, ""))
        words = given[1 : 1 + _MAX_NOTICE]
        return Notice(words, warns=given.startswith(_WARNS)) if words else None

    def drop_notice(self, response: Response) -> None:
        """Delete the sentence, which was shown."""
        response.delete_cookie(_NOTICE, path="/", secure=self.secure, httponly=True, samesite="lax")


@dataclass(frozen=True, slots=True)
class PageZone:
    """The time zone of a page; `chosen` by the user, else the browser's, else UTC."""

    zone: ZoneInfo
    chosen: bool

    @classmethod
    def of(cls, cookies: Mapping[str, str]) -> "PageZone":
        chosen = _zone_in(cookies, _ZONE)
        return cls(chosen or browser_zone(cookies) or ZoneInfo("UTC"), chosen=chosen is not None)


def browser_zone(cookies: Mapping[str, str]) -> ZoneInfo | None:
    """The browser's own time zone; None if no script of ours has run there."""
    return _zone_in(cookies, _BROWSER_ZONE)


def _zone_in(cookies: Mapping[str, str], name: str) -> ZoneInfo | None:
    try:
        return zone_called(unquote(cookies.get(name, "")))
    except WallTimeError:
        return None


def keep_zone(response: Response, name: str, *, secure: bool) -> None:
    """Store the time zone that the user has chosen."""
    response.set_cookie(_ZONE, quote(name), max_age=ZONE_S, path="/", secure=secure, httponly=True, samesite="lax")


def drop_zone(response: Response, *, secure: bool) -> None:
    """Follow the browser's time zone again."""
    response.delete_cookie(_ZONE, path="/", secure=secure, httponly=True, samesite="lax")
