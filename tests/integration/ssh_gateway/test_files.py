"""Files to and from a job by sftp, scp and rsync."""

import filecmp
import os
from pathlib import Path

import pytest

from reservation_core.runtime.ssh import pod_commands
from tests.integration.ssh_gateway.ssh_clients import SshClient, tools_missing

SFTP_SERVERS = ["of the machine", "ours"]


def without_openssh(monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...]) -> None:
    """Make the job's machine one that has no sftp-server but `own`."""
    shell, option, script, name, *_ = pod_commands.sftp_command()
    for server in pod_commands.SFTP_SERVERS:
        assert server in script
        script = script.replace(server, "/nowhere")
    command = (shell, option, script, name, *own)
    monkeypatch.setattr("reservation_core.runtime.ssh.program_streams.sftp_command", lambda: command)


@pytest.fixture(params=SFTP_SERVERS)
def sftp_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The job's SFTP server."""
    if request.param == "ours":
        script = (
            pod_commands.sftp_command()[2].replace("sftp-server;", "no-sftp-server;").replace("/sftp-server ", "/x ")
        )
        assert pod_commands.TOOLS in script
        command = ("sh", "-c", script, *pod_commands.sftp_command()[3:])
        monkeypatch.setattr("reservation_core.runtime.ssh.program_streams.sftp_command", lambda: command)
    return str(request.param)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with files of all sizes, and names that need quoting."""
    folder = tmp_path / "tree"
    (folder / "in here").mkdir(parents=True)
    for name, size in (("empty", 0), ("small", 11), ("in here/it's large", 3_000_000)):
        (folder / name).write_bytes(os.urandom(size))
    (folder / "small").chmod(0o750)
    return folder


def same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files."""
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
    _, wrong, errors = filecmp.cmpfiles(one, other, names, shallow=False)
    return not wrong and not errors


def test_the_programs_are_installed() -> None:
    assert tools_missing() == []


async def test_sftp_brings_files_up_and_back(
    alice: SshClient, job: str, tree: Path, tmp_path: Path, sftp_server: str
) -> None:
    batch = tmp_path / "batch"
    (tmp_path / "back").mkdir()
    batch.write_text(
        f"mkdir there\nput -rp {tree}/* there/\nls -l there\nget -rp there/* {tmp_path}/back/\nrename there/small big\n"
    )
    ended = await alice.run("-b", str(batch), "box@gw", program="sftp")
    assert ended.code == 0, ended.err
    assert same(tree, tmp_path / "back")
    assert (tmp_path / "back" / "small").stat().st_mode & 0o777 == 0o750
    assert (await alice.run("box@gw", "cat big")).out == (tree / "small").read_bytes()


@pytest.mark.parametrize("protocol", ["-s", "-O"])
async def test_scp_copies_with_both_protocols(
    alice: SshClient, job: str, tree: Path, tmp_path: Path, protocol: str
) -> None:
    up = await alice.run(protocol, "-rp", str(tree), "box@gw:copy", program="scp")
    assert up.code == 0, up.err
    back = await alice.run(protocol, "-rp", "box@gw:copy", str(tmp_path / "back"), program="scp")
    assert back.code == 0, back.err
    assert same(tree, tmp_path / "back")


async def test_rsync_brings_what_changed(alice: SshClient, job: str, tree: Path, tmp_path: Path) -> None:
    shell = ["-e", " ".join(alice.words())]

    async def sync(*arguments: str) -> str:
        ended = await alice.run_words(["rsync", "-a", "--stats", *shell, *arguments])
        assert ended.code == 0, ended.err
        return ended.out.decode()

    assert "Number of regular files transferred: 3" in await sync(f"{tree}/", "box@gw:synced/")
    (tree / "small").write_text("changed text")
    assert "Number of regular files transferred: 1" in await sync(f"{tree}/", "box@gw:synced/")
    await sync("box@gw:synced/", f"{tmp_path}/back/")
    assert same(tree, tmp_path / "back")


async def test_an_image_without_an_sftp_server_says_what_to_do(
    alice: SshClient, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, option, script, name, *_ = pod_commands.sftp_command()
    command = (
        shell,
        option,
        script.replace("sftp-server;", "x;").replace("/sftp-server ", "/x "),
        name,
        "/nowhere",
        "/x",
    )
    monkeypatch.setattr("reservation_core.runtime.ssh.program_streams.sftp_command", lambda: command)
    ended = await alice.run("box@gw", program="sftp")
    assert ended.code != 0
    assert "Install the package openssh-sftp-server in its image" in ended.err
