"""The tools of sessions run where nothing but `sh` is: collected here, and started in a folder that is all there is."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_NEEDED = {
    "sftp-server": Path("/usr/lib/openssh/sftp-server"),
    "scp": Path("/usr/bin/scp"),
    "rsync": Path("/usr/bin/rsync"),
    "busybox": Path("/bin/busybox"),
}
_NOBODY = 12345


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a shell and the tools."""
    missing = [name for name, path in _NEEDED.items() if not path.exists()]
    if missing or os.geteuid():
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}")
    root = tmp_path_factory.mktemp("root")
    for folder in ("bin", "opt", "dev/shm", "tmp"):
        (root / folder).mkdir(parents=True)
    for folder in ("dev/shm", "tmp"):
        (root / folder).chmod(0o1777)
    shutil.copy("/bin/busybox", root / "bin")
    for applet in ("sh", "id", "grep", "cat"):
        (root / "bin" / applet).symlink_to("busybox")
    os.mknod(root / "dev" / "null", 0o666 | 0o020000, os.makedev(1, 3))
    (root / "dev" / "null").chmod(0o666)
    subprocess.run(["sh", ROOT / "deploy/session-tools/collect.sh", root / "opt/gpu-dev"], check=True)
    root.chmod(0o755)
    return root


def _shell(bare: Path, folder: Path) -> Path:
    """What the clients take for ssh: it runs a command as a user without a name, with nothing but that root."""
    script = folder / "remote"
    inside = 'PATH=/bin:/opt/gpu-dev/bin; eval "exec $*"'
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != host ]; do shift; done; shift\n'
        '[ "$1" = sftp ] && set -- /opt/gpu-dev/bin/sftp-server\n'
        f"exec chroot --userspec={_NOBODY}:{_NOBODY} {bare} /bin/sh -c '{inside}' sh \"$@\"\n"
    )
    script.chmod(0o755)
    return script


def test_rsync_goes_up_and_back(bare: Path, tmp_path: Path) -> None:
    remote = _shell(bare, tmp_path)
    source, back = ROOT / "docs" / "tutorial", tmp_path / "back"
    subprocess.run(["rsync", "-a", "-e", remote, f"{source}/", "host:/tmp/up/"], check=True)
    subprocess.run(["rsync", "-a", "-e", remote, "host:/tmp/up/", f"{back}/"], check=True)
    assert {file.name: file.read_bytes() for file in back.iterdir()} == {
        file.name: file.read_bytes() for file in source.iterdir()
    }


def test_sftp_works_for_a_user_without_a_name(bare: Path, tmp_path: Path) -> None:
    up, back = tmp_path / "up", tmp_path / "back"
    up.write_bytes(os.urandom(100_000))
    commands = f"put {up} /tmp/file\nget /tmp/file {back}\n"
    subprocess.run(["sftp", "-q", "-b", "-", "-S", _shell(bare, tmp_path), "host"], input=commands.encode(), check=True)
    assert back.read_bytes() == up.read_bytes()


def test_scp_works_for_a_user_without_a_name(bare: Path, tmp_path: Path) -> None:
    """By its old protocol, which OpenSSH before 9.0 uses; the new one is SFTP."""
    up, back = tmp_path / "up", tmp_path / "back"
    up.write_bytes(os.urandom(100_000))
    remote = _shell(bare, tmp_path)
    subprocess.run(["scp", "-q", "-O", "-S", remote, up, "host:/tmp/copied"], check=True)
    subprocess.run(["scp", "-q", "-O", "-S", remote, "host:/tmp/copied", back], check=True)
    assert back.read_bytes() == up.read_bytes()
