"""Public SSH keys from files, from the SSH agent, and from addresses; private keys never leave this machine."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gpu_dev.errors import NoSuchObjectError, UnreachableError, UsageError

_USUAL = ("id_ed25519", "id_ecdsa", "id_ed25519_sk", "id_ecdsa_sk", "id_rsa")
_PRIVATE = "PRIVATE KEY"
_MOST_BYTES = 1024 * 1024
_SITES = {"github": "https://github.com/{}.keys", "gitlab": "https://gitlab.com/{}.keys"}
_ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PATIENCE_S = 15
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_MAKE_ONE = "ssh-keygen -t ed25519"


def read_key(file: Path | None, home: Path) -> str:
    """The public key in a file, or in the first usual one of `home`; of a private key the one beside it.

    Raises UsageError and NoSuchObjectError.
    """
    if file is None:
        usual = [home / ".ssh" / f"{name}.pub" for name in _USUAL]
        file = next((path for path in usual if path.is_file()), None)
        if file is None:
            raise NoSuchObjectError(f"There is no public key in {home / '.ssh'}.", next_command=_MAKE_ONE)
    text = _text_of(file)
    if _PRIVATE in text:
        public = file.with_name(f"{file.name}.pub")
        if not public.is_file():
            raise UsageError(
                f"{file} is a private key, which stays on this machine, and {public} is not there.",
                next_command=f"ssh-keygen -y -f {file} > {public}",
            )
        text = _text_of(public)
    return text.strip()


def read_keys(source: str, environ: Mapping[str, str]) -> list[str]:
    """The public keys of a source, one a line: `github:NAME`, an address, `agent`, a file, or `-` for standard input.

    Raises UsageError, NoSuchObjectError and UnreachableError.
    """
    site, _, account = source.partition(":")
    if site in _SITES and not Path(source).exists():
        if not _ACCOUNT.fullmatch(account):
            raise UsageError(f"{account!r} is not an account's name, such as {site}:ada.")
        text = _fetched(_SITES[site].format(account))
    elif source.startswith(("https://", "http://")):
        text = _fetched(source)
    elif source == "agent":
        text = _keys_of_agent(environ)
    else:
        text = sys.stdin.read(_MOST_BYTES) if source == "-" else _text_of(Path(source))
    if _PRIVATE in text:
        raise UsageError(f"{source} holds a private key, which stays on this machine. Name the file that ends in .pub.")
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise NoSuchObjectError(f"{source} has no public keys.")
    return keys


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        if str(file).startswith(("ssh-", "ecdsa-", "sk-")):
            raise UsageError(
                "This is a key, not a file. Name its file, or send it to `gpu-dev keys import -`."
            ) from error
        raise UsageError(f"{file} can't be read: {error.strerror}.") from error


def _fetched(address: str) -> str:
    import httpx

    try:
        answer = httpx.get(address, timeout=_PATIENCE_S, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(
            f"{address} can't be reached from this machine ({_ERRNO.sub('', str(error))}). Import them from a file.",
            next_command="gpu-dev keys import FILE",
        ) from error
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise NoSuchObjectError(f"There is nothing at {address}.")
    if answer.status_code != httpx.codes.OK:
        raise UnreachableError(f"{address} answered with status {answer.status_code}. Try again later.")
    return answer.text[:_MOST_BYTES]


def _keys_of_agent(environ: Mapping[str, str]) -> str:
    if not environ.get("SSH_AUTH_SOCK"):
        raise NoSuchObjectError("No SSH agent runs here: SSH_AUTH_SOCK is not set.", next_command="gpu-dev keys add")
    try:
        found = subprocess.run(
            ["ssh-add", "-L"],  # noqa: S607 - OpenSSH is found on the PATH, as people find it
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"`ssh-add -L` does not answer: {error}.") from error
    if found.returncode != os.EX_OK:
        raise NoSuchObjectError(f"The SSH agent has no keys: {found.stdout.strip() or found.stderr.strip()}")
    return found.stdout
