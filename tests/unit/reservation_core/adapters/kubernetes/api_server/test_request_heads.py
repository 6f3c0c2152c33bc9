"""A request's bytes: whatever a name holds, one request of the address that was meant, and no other's."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from reservation_core.adapters.kubernetes.api_server.request_heads import RequestHeads
from reservation_core.adapters.kubernetes.api_server.requests import ApiRequest, common_headers, encode_body, encoded

SERVERS = ["https://api.example.org", "https://[::1]:6443", "http://10.0.0.1:8080/k8s/clusters/c-1"]


class Read:
    """What a server makes of it."""

    def __init__(self, data: bytes) -> None:
        self.url = b""
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.requests = 0
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method = parser.get_method().decode()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode().lower(), value.decode()))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.requests += 1


def written(server: str, request: ApiRequest, token: str | None = None) -> Read:
    heads = RequestHeads(URL(server))
    heads.set_headers(common_headers(token))
    return Read(heads.of(request))


ODD = (
    *("a", "..", ".", "pod-1", "x y", "a\r\nHost: b", "%2e%2e", "a?b", "a#b", "%", "%2F", "a:b", "ä", "\n", "\r", "\0"),
    *("a&b", "a&c=d", "a=b,c in (d)", "a+b", "a;b", "eyJ2IjoxfQ==", "a/b"),
)
PARTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(ODD)


@given(st.sampled_from(SERVERS), st.lists(PARTS, max_size=5), st.dictionaries(st.just("q"), PARTS))
def test_the_address_is_what_the_same_words_are_to_every_client(
    server: str, parts: list[str], query: dict[str, str]
) -> None:
    request = ApiRequest("GET", "/api/v1/" + "/".join(parts), query)
    read = written(server, request)
    assert read.requests == 1
    assert read.url.decode() == URL(server + request.target).raw_path_qs
    assert [value for name, value in read.headers if name == "host"] == [URL(server).host_port_subcomponent]


@given(PARTS | st.booleans() | st.integers())
def test_a_querys_value_arrives_as_it_is(value: str | bool | int) -> None:
    read = URL("/?".rstrip("?") + encoded({"a": value, "none": None, "b": "c"}))
    said = str(value).lower() if isinstance(value, bool) else str(value)
    assert dict(read.query) == {"a": said, "b": "c"}


def test_a_query_of_nothing_is_none() -> None:
    assert encoded({"a": None}) == encoded({}) == ""


def test_a_body_is_announced_and_whole() -> None:
    body = encode_body({"metadata": {"name": "ä"}})
    read = written(SERVERS[0], ApiRequest("PATCH", "/a", None, body, "application/merge-patch+json"), "Bearer ä")
    headers = dict(read.headers)
    assert read.body == body
    assert headers["content-type"] == "application/merge-patch+json"
    assert headers["content-length"] == str(len(body))
    assert headers["authorization"] == "Bearer ä"
    assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(("method", "length"), [("GET", None), ("DELETE", None), ("POST", "0"), ("PUT", "0")])
def test_no_body_is_announced_where_one_is_looked_for(method: str, length: str | None) -> None:
    headers = dict(written(SERVERS[0], ApiRequest(method, "/a", None)).headers)
    assert headers.get("content-length") == length
    assert "content-type" not in headers


@pytest.mark.parametrize("token", ["Bearer a\r\nX-Other: b", "Bearer a\nb", "Bearer a\rb", "Bearer \0"])
def test_a_token_of_several_lines_is_not_sent(token: str) -> None:
    with pytest.raises(ValueError, match="more than a line"):
        RequestHeads(URL(SERVERS[0])).set_headers(common_headers(token))


def test_a_body_with_half_a_character_is_told_escaped() -> None:
    assert encode_body({"a": "\ud800"}) == b'{"a": "\\ud800"}'
