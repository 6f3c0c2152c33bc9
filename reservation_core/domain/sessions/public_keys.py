"""Read public SSH keys as people paste them, and refuse what gives no safe way in."""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from reservation_core.domain.errors import PublicKeyRefusedError

LONGEST_LINE: Final = 16_384
"""The most characters of a key in OpenSSH's form."""
_FEWEST_RSA_BITS: Final = 2048
_MOST_RSA_BITS: Final = 16_384
_LONGEST_NAME: Final = 200
_TYPES: Final = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)
_CERTIFICATE: Final = "-cert-v01@openssh.com"
_MAKE_ONE: Final = "`ssh-keygen -t ed25519` makes a key"
_FORM: Final = (
    "A public key is one line that begins with its type, such as `ssh-ed25519 AAAA…`: the content of a file "
    f"whose name ends in .pub. {_MAKE_ONE}."
)
_WORD: Final = re.compile(r"[ \t]+")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key. `blob` is its binary form, which fingerprints and certificates are made of."""

    type: str
    blob: bytes
    comment: str | None

    @property
    def line(self) -> str:
        """OpenSSH's form, without the comment."""
        return f"{self.type} {base64.b64encode(self.blob).decode()}"

    @property
    def fingerprint(self) -> bytes:
        """The SHA-256 digest, 32 bytes."""
        return hashlib.sha256(self.blob).digest()


def fingerprint_words(fingerprint: bytes) -> str:
    """A fingerprint as OpenSSH shows it: `SHA256:…`."""
    return f"SHA256:{base64.b64encode(fingerprint).decode().rstrip('=')}"


def read_public_key(text: str) -> PublicKey:
    """Read one public key in OpenSSH's form. Raises PublicKeyRefusedError, which never quotes the text."""
    text = text.strip()
    if "PRIVATE KEY" in text:
        raise PublicKeyRefusedError(
            "This is a private key, which nobody else may ever see. Send the public key instead: the file with the "
            "same name that ends in .pub. If the private key left your machine, make a new pair."
        )
    if text.startswith("---"):
        raise PublicKeyRefusedError(
            "This key is not in OpenSSH's form. `ssh-keygen -i -m PKCS8 -f FILE` converts a PEM file, and "
            "`ssh-keygen -i -f FILE` one that begins with `---- BEGIN SSH2`."
        )
    if len(text.splitlines()) > 1:
        raise PublicKeyRefusedError("There is more than one line. Send one key at a time.")
    words = _WORD.split(text, maxsplit=2)
    _check_type(words, text)
    comment = words[2] if len(words) > 2 else None
    blob = _blob_of(words[0], words[1] if len(words) > 1 else "")
    return PublicKey(words[0], blob, comment if comment and comment.isprintable() else None)


def name_of(key: PublicKey) -> str | None:
    """A name for a key that was given none: its comment."""
    return None if key.comment is None else key.comment.strip()[:_LONGEST_NAME].strip() or None


def _check_type(words: list[str], text: str) -> None:
    if words[0] in _TYPES:
        return
    if words[0].endswith(_CERTIFICATE):
        raise PublicKeyRefusedError("This is a certificate. Send the public key that it was made for.")
    if words[0] == "ssh-dss":
        raise PublicKeyRefusedError(f"DSA keys are not secure, and OpenSSH no longer takes them. {_MAKE_ONE}.")
    if set(_WORD.split(text)) & {*_TYPES, "ssh-dss"}:
        raise PublicKeyRefusedError(
            "The line has options before the key, which have no effect here. Send what begins with the key's type, "
            "such as `ssh-ed25519`."
        )
    raise PublicKeyRefusedError(_FORM)


def _blob_of(key_type: str, encoded: str) -> bytes:
    try:
        blob = base64.b64decode(encoded, validate=True)
        key = load_ssh_public_key(f"{key_type} {encoded}".encode())
    except (binascii.Error, ValueError, UnsupportedAlgorithm):
        raise PublicKeyRefusedError(f"The key is incomplete or damaged. {_FORM}") from None
    if isinstance(key, RSAPublicKey) and not _FEWEST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS:
        raise PublicKeyRefusedError(
            f"RSA keys must have {_FEWEST_RSA_BITS} to {_MOST_RSA_BITS} bits, and this one has {key.key_size}. "
            f"{_MAKE_ONE}."
        )
    return blob
