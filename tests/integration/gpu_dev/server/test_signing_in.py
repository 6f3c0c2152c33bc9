"""`gpu-dev login` with proofs of others, against a whole system; and again by itself when the token has expired."""

import asyncio
import json
import shlex
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.integration.gpu_dev.conftest import Finished, System
from tests.kubernetes.api_server import ApiServer
from tests.people.sign_in_world import ACCOUNT, SERVER, SignInWorld

ALONE = {"GPU_DEV_SERVER": "", "GPU_DEV_TOKEN": ""}
Believing = tuple[System, SignInWorld]


def stored(system: System) -> dict[str, Any]:
    """What the login file holds."""
    path = system.folder / "config" / "gpu-dev" / "login.json"
    assert path.stat().st_mode & 0o777 == 0o600
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def me(system: System, **more: str) -> Finished:
    """The user of the command line now."""
    return system.cli("users", "me", "-o", "json", **{**ALONE, **more})


def revoke_all_of(system: System, user: str) -> None:
    """As if they had expired."""
    for token in json.loads(system.cli("tokens", "list", "-o", "json", who="admin").stdout)["items"]:
        if token["user"] == user:
            assert system.cli("tokens", "revoke", token["id"], "--yes", who="admin").returncode == 0


def id_token(world: SignInWorld, folder: Path) -> Path:
    """A file with a good one."""
    path = folder / "id-token"
    path.write_text(world.issuer.token(world.issuer.claims(datetime.now(UTC))) + "\n")
    return path


def test_aws_and_again_by_itself(believing: Believing) -> None:
    system, world = believing
    person = world.sts.person("AKIAEXAMPLEOFADA", f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-users/ada")
    done = system.cli("login", system.url, "--aws", "--server-id", SERVER, **ALONE, **person)
    assert done.returncode == 0, done.stderr
    assert "as ada (user) until" in done.stdout
    first = stored(system)["tokens"][system.url]
    assert json.loads(me(system).stdout)["name"] == "ada"
    revoke_all_of(system, "ada")
    assert json.loads(me(system, **person).stdout)["name"] == "ada"
    second = stored(system)["tokens"][system.url]
    assert second != first
    # Neither keys nor proofs are kept.
    kept = json.dumps(stored(system))
    assert "secret-of" not in kept
    assert "AKIA" not in kept


def test_a_server_that_is_meant_by_another_name_gets_nothing_it_could_use(believing: Believing) -> None:
    system, world = believing
    person = world.sts.person("AKIAEXAMPLEOFADA", f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-users/ada")
    # Signed for the address that was typed, which is not what the server calls itself.
    done = system.cli("login", system.url, "--aws", **ALONE, **person)
    assert done.returncode == 6
    assert "not signed for this server" in done.stderr
    assert world.network.asked == []


def test_an_id_token_of_a_file_and_of_a_command(believing: Believing) -> None:
    system, world = believing
    path = id_token(world, system.folder)
    assert system.cli("login", system.url, "--oidc", "--id-token-file", str(path), **ALONE).returncode == 0
    assert json.loads(me(system).stdout)["name"] == "ada"
    revoke_all_of(system, "ada")
    path.unlink()
    gone = me(system)
    assert (gone.returncode, "can't be read" in gone.stderr) == (2, True)
    path = id_token(world, system.folder)
    said = shlex.join([sys.executable, "-c", f"print(open({str(path)!r}).read())"])
    by_command = system.cli("login", system.url, "--id-token-command", said, **ALONE)
    assert by_command.returncode == 0, by_command.stderr
    revoke_all_of(system, "ada")
    # In the middle of a command, too; and what it submits is there once.
    made = system.cli("submit", "-g", "1", "-d", "1m", "--", "true", **ALONE)
    assert made.returncode == 0, made.stderr
    assert len(json.loads(system.cli("list", "--all", "-o", "json", **ALONE).stdout)["items"]) == 1


class Metadata(BaseHTTPRequestHandler):
    """What a machine in Google's cloud finds."""

    def do_GET(self) -> None:
        """The token for an audience, for who knows what this is."""
        address = urlsplit(self.path)
        right = self.headers["Metadata-Flavor"] == "Google" and address.path.endswith("/default/identity")
        self.send_response(200 if right else 403)
        self.send_header("Metadata-Flavor", "Google")
        self.end_headers()
        self.wfile.write(self.server.token_for(parse_qs(address.query)["audience"][0]).encode())  # type: ignore[attr-defined]

    def log_message(self, *_said: object) -> None:
        """Nothing."""


def test_a_machine_in_googles_cloud(believing: Believing) -> None:
    system, world = believing
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    server.token_for = lambda audience: world.issuer.token(world.issuer.claims(datetime.now(UTC), aud=audience))  # type: ignore[attr-defined]
    answering = threading.Thread(target=server.serve_forever)
    answering.start()
    try:
        here = {"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}
        done = system.cli("login", system.url, "--oidc", "--gcp", "--server-id", SERVER, **ALONE, **here)
        assert done.returncode == 0, done.stderr
        assert json.loads(me(system).stdout)["name"] == "ada"
        # Without a word on it the token is for the address that was typed.
        other = system.cli("login", system.url, "--gcp", **ALONE, **here)
        assert (other.returncode, "for another audience" in other.stderr) == (6, True)
    finally:
        server.shutdown()
        answering.join()
        server.server_close()
    elsewhere = system.cli("login", system.url, "--gcp", **ALONE, GCE_METADATA_HOST=here["GCE_METADATA_HOST"])
    assert (elsewhere.returncode, "no machine or pod of Google's cloud" in elsewhere.stderr) == (6, True)


def test_a_service_accounts_token(believing: Believing, api_server: ApiServer, namespace: str) -> None:
    system, _ = believing
    path = system.folder / "token"
    path.write_text(asyncio.run(api_server.token_of(namespace, "runner", SERVER)))
    done = system.cli("login", system.url, "--kubernetes", "--service-account-token", str(path), **ALONE)
    assert done.returncode == 0, done.stderr
    assert json.loads(me(system).stdout)["name"] == "ci"
    path.write_text(asyncio.run(api_server.token_of(namespace, "stranger", SERVER)))
    refused = system.cli("login", system.url, "--kubernetes", "--service-account-token", str(path), **ALONE)
    assert (refused.returncode, "Ask an administrator" in refused.stderr) == (6, True)


def test_what_is_not_said_right(believing: Believing) -> None:
    system, _ = believing
    (system.folder / "not-one").write_text("hunter2")
    for words, said in (
        (["--oidc"], "--id-token-file"),
        (["--id-token-file", "a", "--gcp"], "--id-token-file"),
        (["--aws", "--kubernetes"], "one way"),
        (["--aws", "--token-stdin"], "one way"),
        (["--kubernetes", "--service-account-token", str(system.folder / "nowhere")], "can't be read"),
        (["--id-token-file", str(system.folder / "not-one")], "holds no token"),
        (["--id-token-command", "/nowhere/at-all"], "can't be run"),
    ):
        done = system.cli("login", system.url, *words, **ALONE)
        assert done.returncode == 2, words
        assert said in done.stderr
        assert "hunter2" not in done.stderr
    failed = system.cli(
        "login", system.url, "--id-token-command", f"{shlex.quote(sys.executable)} -c 'raise SystemExit(3)'", **ALONE
    )
    assert (failed.returncode, "ended with 3" in failed.stderr) == (6, True)


def test_logging_out_and_other_logins_forget_the_way(believing: Believing) -> None:
    system, world = believing
    path = id_token(world, system.folder)
    assert system.cli("login", system.url, "--id-token-file", str(path), **ALONE).returncode == 0
    assert system.url in stored(system)["ways"]
    given = system.cli("login", system.url, "--token-stdin", stdin=system.tokens["alice"], **ALONE)
    assert given.returncode == 0
    assert stored(system)["ways"] == {}
    assert system.cli("login", system.url, "--id-token-file", str(path), **ALONE).returncode == 0
    assert system.cli("logout", **ALONE).returncode == 0
    assert stored(system)["ways"] == {}
    assert me(system, GPU_DEV_SERVER=system.url).returncode == 6
