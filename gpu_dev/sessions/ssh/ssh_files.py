"""The files of SSH beside the login file: a key of one's own, and by server a certificate and its host key.

All of it may be deleted: it is made again when it is needed.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from gpu_dev.calls.session_calls import SessionCalls
from gpu_dev.errors import UsageError
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.server.connection import login_file, write_private

DOMAIN = ".gpu-dev"
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,252}\.gpu-dev")
_FRESH = timedelta(minutes=5)
"""A certificate that is good for less is replaced: it has to be good when it is shown."""


@dataclass(frozen=True, slots=True)
class SshFiles:
    """Their places. `config` is what `config-ssh` writes."""

    key: Path
    certificate: Path
    known_hosts: Path
    valid_until: Path
    config: Path
    users: Path

    @property
    def public_key(self) -> Path:
        return self.key.with_name(f"{self.key.name}.pub")


def ssh_files(server: str, environ: Mapping[str, str]) -> SshFiles:
    """The files for a server."""
    folder = login_file(environ).with_name("ssh")
    url = urlsplit(server)
    place = folder / "-".join(filter(None, [url.scheme, url.hostname, str(url.port or ""), url.path.replace("/", "_")]))
    return SshFiles(
        folder / "id_ed25519",
        place / "certificate.pub",
        place / "known_hosts",
        place / "certificate-valid-until",
        folder / "config",
        folder / "users",
    )


def refresh(calls: SessionCalls, files: SshFiles) -> None:
    """Have a key, and a certificate that is good for some minutes. Raises ClientError."""
    _make_key(files)
    if files.certificate.is_file() and files.known_hosts.is_file() and _is_fresh(files):
        return
    issued = calls.certificate(files.public_key.read_text(encoding="ascii").strip())
    write_private(files.certificate, f"{issued.certificate}\n")
    write_private(files.known_hosts, f"*{DOMAIN} {issued.host_key}\n")
    write_private(files.valid_until, f"{issued.valid_until.isoformat()}\n")


def _make_key(files: SshFiles) -> None:
    if files.key.is_file() and files.public_key.is_file():
        return
    files.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.key.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpu-dev", "-f", str(files.key)]
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise UsageError("OpenSSH is not installed here: there is no ssh-keygen.") from error
    except subprocess.CalledProcessError as error:
        raise UsageError(f"ssh-keygen could not make a key at {files.key}.") from error


def _is_fresh(files: SshFiles) -> bool:
    try:
        until = datetime.fromisoformat(files.valid_until.read_text(encoding="ascii").strip())
        return until - local_now() > _FRESH
    except (OSError, ValueError, TypeError):
        return False


def options(files: SshFiles, proxy_command: str) -> list[str]:
    """OpenSSH's options, as `Keyword value` lines, with which it enters jobs."""
    return [
        f"ProxyCommand {proxy_command}",
        f"IdentityFile {quoted(files.key)}",
        f"CertificateFile {quoted(files.certificate)}",
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {quoted(files.known_hosts)}",
        "StrictHostKeyChecking yes",
        "ServerAliveInterval 30",
    ]


def quoted(path: Path | str) -> str:
    """A path as a word of ssh_config, where `%` begins a token."""
    text = str(path).replace("%", "%%")
    return f'"{text}"' if " " in text else text


def note_user(files: SshFiles, host: str) -> None:
    """Have OpenSSH's user name for a host, which is the job's id or name: its configuration has no word for that."""
    if _HOST.fullmatch(host):
        write_private(files.users / host, f"Host {host}\n    User {job_of(host)}\n")


def job_of(host: str) -> str:
    """The job of a host such as `job-7f3k9q2m.gpu-dev`."""
    return host.removesuffix(DOMAIN)


def user_of(job: str, rank: int) -> str:
    """The user name by which OpenSSH enters a job: the pod of rank 0 unless it says another."""
    return f"{job}+{rank}" if rank else job


def host_of(user: str) -> str:
    """The host name under which OpenSSH knows a job."""
    return f"{user}{DOMAIN}"
