"""What pages keep in cookies, and how much of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from api_service.web.sessions.cookies import Cookies, Notice

LARGEST = 4096
"""Name, value and attributes: what browsers keep, which is to say that they drop what is larger."""


def asking(url: str = "http://gpus.lab/sign-in", **headers: str) -> Request:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    listed = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    server = (host.partition(":")[0], 80)
    return Request(
        {
            "type": "http",
            "scheme": scheme,
            "server": server,
            "path": f"/{path}",
            "headers": [(b"host", host.encode()), *listed],
            "query_string": b"",
        }
    )


def told(words: str, *, warns: bool = False) -> tuple[str, str]:
    """The cookie as it is set, and the sentence that comes back with it."""
    response = Response()
    Cookies(secure=False).keep_notice(response, Notice(words, warns=warns))
    cookie = response.headers["set-cookie"]
    back = Cookies(secure=False).notice(asking(cookie=cookie.partition(";")[0]))
    assert back is None or back.warns is warns
    return cookie, "" if back is None else back.words


@given(st.text(max_size=2000), st.booleans())
def test_a_sentence_comes_back_as_it_was_or_its_beginning_and_the_cookie_is_kept(notice: str, warns: bool) -> None:
    cookie, back = told(notice, warns=warns)
    assert len(cookie) <= LARGEST
    assert notice.startswith(back)
    if len(notice) <= 200:
        assert back == notice


@pytest.mark.parametrize("letter", ["x", "é", "語", "🙂"])
def test_a_long_sentence_is_cut_where_the_cookie_ends(letter: str) -> None:
    cookie, back = told(letter * 10_000)
    assert len(cookie) <= LARGEST
    assert 0 < len(back) <= 500
    assert set(back) == {letter}


def test_what_another_wrote_there_is_shown_no_longer_than_a_sentence() -> None:
    found = Cookies(secure=False).notice(asking(cookie=f"gpu_dev_told=+{'x' * 3900}"))
    assert found == Notice("x" * 500, warns=False)
    assert Cookies(secure=False).notice(asking(cookie="gpu_dev_told=!")) is None


@pytest.mark.parametrize(
    ("secure", "url", "proxy", "dropped"),
    [
        (True, "http://gpus.lab/sign-in", None, True),
        (True, "http://gpus.lab/sign-in", "https", False),
        (True, "https://gpus.lab/sign-in", None, False),
        (True, "http://127.0.0.1:8080/sign-in", None, False),  # browsers take it there
        (False, "http://gpus.lab/sign-in", None, False),
    ],
)
def test_what_a_browser_would_not_keep_is_known(secure: bool, url: str, proxy: str | None, dropped: bool) -> None:
    request = asking(url) if proxy is None else asking(url, x_forwarded_proto=proxy)
    assert Cookies(secure).would_be_dropped(request) is dropped
