"""SSH keys and shares by the command line."""

import json
import re
from pathlib import Path

import asyncssh

from tests.integration.gpu_dev.conftest import System


def written(path: Path, comment: str) -> tuple[str, str]:
    """A pair of files; the private and the public key."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    path.write_bytes(key.export_private_key())
    path.with_name(f"{path.name}.pub").write_bytes(key.export_public_key())
    return path.read_text(), path.with_name(f"{path.name}.pub").read_text()


def test_keys_are_added_imported_and_removed(system: System, tmp_path: Path) -> None:
    private, public = written(tmp_path / "id", "ada@laptop")
    added = system.cli("keys", "add", str(tmp_path / "id"))  # the public key beside it is meant
    assert (added.returncode, added.stdout.split()[1:3]) == (0, ["added:", "ada@laptop"]), added.stderr
    again = system.cli("keys", "add", str(tmp_path / "id.pub"))
    assert "was there already" in again.stdout
    (tmp_path / "id.pub").unlink()
    refused = system.cli("keys", "add", str(tmp_path / "id"))
    assert refused.returncode == 2
    assert "is a private key, which stays on this machine" in refused.stderr
    assert private.splitlines()[2] not in refused.stderr
    _, other = written(tmp_path / "other", "desk")
    imported = system.cli("keys", "import", "-", stdin=f"# keys\n{public}\n{other}\nssh-dss AAAA\n")
    assert imported.returncode == 4
    assert "was there already" in imported.stdout
    assert "added: desk" in imported.stdout
    assert "Key 3 of 3 is not added: DSA keys are not secure" in imported.stderr
    listed = json.loads(system.cli("keys", "list", "-o", "json").stdout)["items"]
    assert {key["name"] for key in listed} == {"ada@laptop", "desk"}
    removed = system.cli(
        "keys", "remove", "desk", listed[0]["id"] if listed[0]["name"] != "desk" else listed[1]["id"], "--yes"
    )
    assert (removed.returncode, len(removed.stdout.splitlines())) == (0, 2), removed.stderr
    assert system.cli("keys", "list").stdout.startswith("No SSH keys.")


def test_sources_without_keys_are_told_apart(system: System) -> None:
    for source, code, said in (
        ("http://127.0.0.1:1/ada.keys", 5, "can't be reached from this machine (Connection refused)"),
        ("github:not/a/name", 2, "is not an account's name"),
        ("no-such-file", 2, "can't be read"),
        ("-", 3, "has no public keys"),
    ):
        refused = system.cli("keys", "import", source, stdin="")
        assert (refused.returncode, said in refused.stderr) == (code, True), refused.stderr


def test_a_job_is_shared_and_unshared_by_its_name(system: System) -> None:
    job_id = system.cli("submit", "-g", "1", "-d", "1m", "--name", "train", "--", "true").stdout.strip()
    shared = system.cli("share", "train", "--with", "bob")
    assert (shared.returncode, shared.stdout) == (0, f"{job_id} is shared with bob\n"), shared.stderr
    assert json.loads(system.cli("show", job_id, "-o", "json").stdout)["shared_with"] == ["bob"]
    assert re.search(r"^shared with +bob$", system.cli("show", job_id).stdout, re.MULTILINE)
    assert system.cli("share", "train", "--with", "nobody").returncode == 3
    assert system.cli("unshare", "train", "--with", "bob").stdout == f"{job_id} is no longer shared with bob\n"
    assert system.cli("unshare", "train", "--with", "bob").returncode == 3


def test_a_shared_job_is_listed_and_looked_at_by_its_name(system: System) -> None:
    job_id = system.cli("submit", "-g", "1", "-d", "1m", "--name", "train", "--", "echo", "hello").stdout.strip()
    other = system.cli("submit", "-g", "1", "-d", "1m", "--", "true").stdout.strip()
    assert system.cli("show", "train", who="bob").returncode == 3
    for shared in ("train", other):
        system.cli("share", shared, "--with", "bob")
    listed = system.cli("list", "--shared", "--all", "-o", "name", who="bob")
    assert (listed.stdout.split(), listed.stderr) == ([other, job_id], ""), listed.stderr
    assert "alice" in system.cli("list", "--shared", "--all", who="bob").stdout
    assert system.cli("list", "--shared", "--user", "bob", "--all", "-o", "name", who="bob").stdout == ""
    assert system.cli("list", "--all", "-o", "name", who="bob").stdout == ""
    assert system.cli("list", "--shared").stdout.startswith("No job that is shared with you waits or runs")
    for command in ("show", "events"):
        looked = system.cli(command, "train", who="bob")
        assert (looked.returncode, looked.stderr) == (0, f"train is {job_id}, which alice shares with you.\n")
    assert system.cli("logs", "-f", "train", who="bob").stdout == "hello\n"
    assert json.loads(system.cli("show", other[:-1], "-o", "json", who="bob").stdout)["id"] == other
    assert "Ask alice to change it" in system.cli("cancel", "train", who="bob").stderr


def test_a_shared_job_does_not_take_the_name_of_ones_own(system: System) -> None:
    own = system.cli("submit", "-g", "1", "-d", "1m", "--name", "box", "--", "true", who="bob").stdout.strip()
    system.cli("logs", "-f", own, who="bob")
    system.cli("submit", "-g", "1", "-d", "1m", "--name", "box", "--", "sleep", "60")
    system.cli("share", "box", "--with", "bob")
    assert system.cli("show", "box", "-o", "name", who="bob").stdout == f"{own}\n"
