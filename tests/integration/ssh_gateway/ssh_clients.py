"""OpenSSH's own client, with a home of its own for each user."""

import asyncio
import hashlib
import os
import subprocess
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.ports.sessions.ssh_keys import NewSshKey
from tests.waiting import PATIENCE_S


@dataclass(frozen=True)
class Ended:
    """What a program has printed, and its exit code."""

    code: int
    out: bytes
    err: str


class SshClient:
    """A user's OpenSSH, which knows the gateway's host key and one key of the user's."""

    def __init__(self, folder: Path, port: int, known_hosts: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = folder / "id_ed25519"
        self.port = port
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a comment", "-f", str(self.key)], check=True
        )
        (folder / "known_hosts").write_text(known_hosts)
        (folder / "config").write_text(
            f"""Host *
    HostName 127.0.0.1
    Port {port}
    IdentityFile {self.key}
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking {"yes" if known_hosts else "accept-new"}
    PasswordAuthentication no
    LogLevel INFO
"""
        )

    @property
    def public_key(self) -> str:
        return self.key.with_suffix(".pub").read_text()

    def words(self, *arguments: str, program: str = "ssh") -> list[str]:
        """The command line of `ssh`, `scp` or `sftp` with this user's configuration."""
        return [program, "-F", str(self.folder / "config"), *arguments]

    async def start(self, *arguments: str, program: str = "ssh", **more: object) -> asyncio.subprocess.Process:
        """Start a client, with pipes."""
        pipe = asyncio.subprocess.PIPE
        pipes: dict[str, object] = {"stdin": pipe, "stdout": pipe, "stderr": pipe}
        words = self.words(*arguments, program=program)
        return await asyncio.create_subprocess_exec(*words, **(pipes | more), cwd=self.folder)  # type: ignore[arg-type]

    async def run(self, *arguments: str, program: str = "ssh", input: bytes = b"") -> Ended:  # noqa: A002
        """Run a client to its end."""
        return await self.run_words(self.words(*arguments, program=program), input)

    async def run_words(self, words: list[str], input: bytes = b"") -> Ended:  # noqa: A002
        """Run a program in this user's folder to its end."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.folder)
        out, err = await asyncio.wait_for(process.communicate(input), PATIENCE_S)
        return Ended(process.returncode or 0, out, err.decode())


async def add_key(uow: UnitOfWork, user_id: int, key_id: str, line: str, now: object) -> str:
    """Make a public key one of a user's; returns its id."""
    algorithm, blob = line.split()[:2]
    digest = hashlib.sha256(b64decode(blob)).digest()
    new = NewSshKey(key_id, user_id, None, digest, f"{algorithm} {blob}")
    await uow.ssh_keys.add(new, most=100, now=now)  # type: ignore[arg-type]
    return key_id


def tools_missing() -> list[str]:
    """The programs of OpenSSH and rsync that are not installed."""
    needed = ("ssh", "scp", "sftp", "ssh-keygen", "rsync")
    folders = os.environ.get("PATH", "").split(":")
    return [name for name in needed if not any(os.access(f"{folder}/{name}", os.X_OK) for folder in folders)]
