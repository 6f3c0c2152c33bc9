"""Reading public SSH keys: what OpenSSH makes is read, everything else is refused in words that help."""

import base64
import subprocess
from pathlib import Path

import asyncssh
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.errors import PublicKeyRefusedError
from reservation_core.domain.sessions.public_keys import PublicKey, fingerprint_words, name_of, read_public_key

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMYb3q9Xj4YQ8F1W3QWp0aC4s0r1nF0wq9c0J9d6f3Jk"


def made(algorithm: str, **options: int) -> str:
    return asyncssh.generate_private_key(algorithm, **options).export_public_key().decode().strip()


def security_key(algorithm: str) -> str:
    """A key of a security token, which needs a touch."""
    kind, key = algorithm.encode(), asyncssh.generate_private_key(algorithm.removeprefix("sk-").split("@")[0])
    plain = key.convert_to_public().public_data
    parts, rest = [], plain
    while rest:
        size = int.from_bytes(rest[:4])
        parts.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    blob = b"".join(len(part).to_bytes(4) + part for part in (kind, *parts[1:], b"ssh:"))
    return f"{algorithm} {base64.b64encode(blob).decode()}"


@pytest.mark.parametrize(
    "line",
    [
        *(made(f"ecdsa-sha2-nistp{bits}") for bits in (256, 384, 521)),
        made("ssh-ed25519"),
        made("ssh-rsa", key_size=2048),
        security_key("sk-ssh-ed25519@openssh.com"),
        security_key("sk-ecdsa-sha2-nistp256@openssh.com"),
    ],
    ids=lambda line: line.split()[0],
)
def test_keys_are_read_as_openssh_reads_them(line: str, tmp_path: Path) -> None:
    key = read_public_key(f"  {line}  ann@laptop of Ann \n")
    assert key.line == " ".join(line.split()[:2])
    assert key.comment == "ann@laptop of Ann"
    path = tmp_path / "key.pub"
    path.write_text(key.line)
    shown = subprocess.run(["ssh-keygen", "-l", "-f", path], capture_output=True, text=True, check=True).stdout
    assert fingerprint_words(key.fingerprint) == shown.split()[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "one line that begins with its type"),
        ("hello", "one line that begins with its type"),
        ("AAAAC3NzaC1lZDI1NTE5AAAAIMYb", "one line that begins with its type"),
        ("ssh-ed448 AAAA", "one line that begins with its type"),
        ("ssh-ed25519", "incomplete or damaged"),
        (ED25519[:-8], "incomplete or damaged"),
        (ED25519.replace("ssh-ed25519", "ssh-rsa"), "incomplete or damaged"),
        (ED25519 + "!", "incomplete or damaged"),
        (f"{ED25519}\n{ED25519}", "one key at a time"),
        (f"{ED25519}\u2028{ED25519}", "one key at a time"),
        (f'command="true",no-pty {ED25519}', "options before the key"),
        (f"from=10.0.0.1 {ED25519}", "options before the key"),
        ("ssh-dss AAAAB3NzaC1kc3MAAACBA", "DSA keys are not secure"),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", "This is a certificate"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "This is a private key"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc", "This is a private key"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nabc", "This is a private key"),
        ("-----BEGIN PUBLIC KEY-----\nabc", "not in OpenSSH's form"),
        ("---- BEGIN SSH2 PUBLIC KEY ----\nabc", "not in OpenSSH's form"),
    ],
)
def test_everything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(PublicKeyRefusedError, match=words) as refused:
        read_public_key(text)
    assert "AAAA" not in str(refused.value).replace("`ssh-ed25519 AAAA…`", "")


def test_short_rsa_keys_are_refused() -> None:
    with pytest.raises(PublicKeyRefusedError, match="this one has 1024"):
        read_public_key(made("ssh-rsa", key_size=1024))


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_breaks_it(before: str, after: str) -> None:
    for text in (before + after, f"{before}{ED25519}{after}", f"ssh-rsa {before} {after}"):
        try:
            key = read_public_key(text)
        except PublicKeyRefusedError:
            continue
        name = name_of(key)
        assert name is None or (name.isprintable() and 1 <= len(name) <= 200)


def test_a_key_is_named_by_its_comment() -> None:
    assert name_of(PublicKey("ssh-ed25519", b"", None)) is None
    assert name_of(PublicKey("ssh-ed25519", b"", "x" * 300)) == "x" * 200
    assert name_of(read_public_key(f"{ED25519} ann@laptop")) == "ann@laptop"
