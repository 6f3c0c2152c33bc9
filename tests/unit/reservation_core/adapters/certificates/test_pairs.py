"""Certificates that TLS itself accepts, and what is read from them."""

import base64
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reservation_core.adapters.certificates.pairs import (
    BadCertificateError,
    Pair,
    make_pair,
    read_authorities,
    read_serving,
    select_authorities,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def handshake(pair: Pair, trusted: bytes, name: str, folder: Path) -> str:
    """The protocol that client and server agree on. Raises SSLError where the client does not believe the server."""
    (folder / "cert").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "cert", folder / "key")
    client = ssl.create_default_context(cadata=trusted.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # as newer Pythons, and Go, check
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as wrapped:
                wrapped.recv(1)
        except (ssl.SSLError, OSError):
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(near, server_hostname=name) as wrapped:
            return str(wrapped.version())
    finally:
        near.close()
        thread.join()


@pytest.mark.parametrize("name", ["webhook", "webhook.system.svc", "127.0.0.1", "::1"])
def test_tls_believes_it_by_each_of_its_names(name: str, tmp_path: Path) -> None:
    pair = make_pair(["webhook", "webhook.system.svc", "127.0.0.1", "::1"], DAY, datetime.now(UTC))
    assert handshake(pair, pair.authority, name, tmp_path) == "TLSv1.3"


def test_tls_believes_it_beside_other_authorities(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    old, new = make_pair(["webhook"], DAY, now), make_pair(["webhook"], DAY, now)
    both = new.authority + old.authority
    assert handshake(old, both, "webhook", tmp_path)
    assert handshake(new, both, "webhook", tmp_path)
    with pytest.raises(ssl.SSLError):
        handshake(new, old.authority, "webhook", tmp_path)


def test_a_name_that_is_not_in_it_is_refused(tmp_path: Path) -> None:
    pair = make_pair(["webhook"], DAY, datetime.now(UTC))
    with pytest.raises(ssl.SSLError):
        handshake(pair, pair.authority, "another", tmp_path)


def test_what_is_read_is_what_was_made() -> None:
    pair = make_pair(["b.svc", "a", "10.0.0.1"], 90 * DAY, NOW)
    (authority,) = read_authorities(pair.authority)
    serving = read_serving(pair.certificate, pair.authority)
    assert serving.names == {"b.svc", "a", "10.0.0.1"}
    assert (serving.made_at, serving.ends_at) == (NOW, NOW + 90 * DAY)
    assert serving.authority == authority.fingerprint
    assert authority.ends_at == NOW + 90 * DAY


def test_an_authority_that_did_not_sign_is_not_its_own() -> None:
    pair, other = make_pair(["a"], DAY, NOW), make_pair(["a"], DAY, NOW)
    assert read_serving(pair.certificate, other.authority).authority == ""
    both = other.authority + pair.authority
    assert read_serving(pair.certificate, both).authority == read_authorities(pair.authority)[0].fingerprint
    assert select_authorities(both + both, [read_authorities(pair.authority)[0].fingerprint]) == pair.authority


@pytest.mark.parametrize(
    "bad", [b"", b"\n", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_said_to_be_none(bad: bytes) -> None:
    with pytest.raises(BadCertificateError):
        read_authorities(bad)


def test_the_key_is_not_shown() -> None:
    pair = make_pair(["a"], DAY, NOW)
    assert base64.b64encode(pair.key).decode()[:40] not in repr(pair)
    assert "PRIVATE" not in repr(pair)
