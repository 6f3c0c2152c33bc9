"""The environment's proxies: who is asked through one, and who is excepted."""

import pytest

from reservation_core.domain.network.environment_proxies import is_excepted, proxy_for


@pytest.mark.parametrize(
    ("entries", "host", "port"),
    [
        ("10.96.0.0/12", "10.96.0.1", 443),
        ("localhost,10.0.0.0/8,.svc", "10.1.2.3", 6443),
        ("fd00::/8", "fd00::1", 443),
        ("10.0.0.1", "10.0.0.1", 443),
        ("10.0.0.1:443", "10.0.0.1", 443),
        ("[fd00::1]:443", "fd00::1", 443),
        ("[fd00::1]", "fd00::1", 443),
        ("fd00::1", "fd00::1", 443),
        ("10.0.0.7/8", "10.9.9.9", 443),
        ("example.org", "example.org", 443),
        ("example.org", "api.example.org", 443),
        (".example.org", "api.example.org", 443),
        (".example.org", "example.org", 443),
        ("*.example.org", "api.example.org", 443),
        ("Example.ORG.", "API.example.org.", 443),
        ("example.org:8443", "example.org", 8443),
        ("a b, example.org", "example.org", None),
        ("*", "anywhere", 1),
    ],
)
def test_excepted(entries: str, host: str, port: int | None) -> None:
    assert is_excepted(host, port, entries)


@pytest.mark.parametrize(
    ("entries", "host", "port"),
    [
        ("", "example.org", 443),
        (" , ,", "example.org", 443),
        ("10.96.0.0/12", "10.112.0.1", 443),
        ("10.0.0.1:443", "10.0.0.1", 6443),
        ("10.0.0.0/8", "fd00::1", 443),
        ("::ffff:0:0/96", "10.0.0.1", 443),
        ("10.0.0.0/8", "api.example.org", 443),
        ("ample.org", "example.org", 443),
        ("api.example.org", "example.org", 443),
        ("example.org:8443", "example.org", 443),
        ("example.org:8443", "example.org", None),
        (".", "example.org", 443),
        ("*.", "example.org", 443),
    ],
)
def test_not_excepted(entries: str, host: str, port: int | None) -> None:
    assert not is_excepted(host, port, entries)


def test_the_proxy_of_the_scheme_is_taken() -> None:
    proxies = {"https": "http://proxy:3128", "http": "other:8080", "no": "10.0.0.0/8"}
    assert proxy_for("https", "api.example.org", 443, proxies) == "http://proxy:3128"
    assert proxy_for("http", "api.example.org", 80, proxies) == "http://other:8080"
    assert proxy_for("https", "10.96.0.1", 443, proxies) is None
    assert proxy_for("https", "api.example.org", 443, {"http": "http://proxy:3128"}) is None
    assert proxy_for("https", "api.example.org", 443, {"https": ""}) is None
