"""Credentials for an API server, read from files that change under us."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservation_core.adapters.kubernetes.api_server.credentials import (
    Credentials,
    KubeconfigError,
    ServiceAccountFiles,
)
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.read_yaml import read_yaml

SECRET = "s3cret-t0ken"


def kubeconfig(path: Path, user: dict[str, Any], *, context: str = "here") -> Path:
    """A kubeconfig with one user."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        "current-context": context,
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def token_of(credentials: Credentials, *, afresh: bool = False) -> str | None:
    """The Authorization header's value."""
    access = await credentials.load(afresh=afresh)
    token: str | None = access.configuration.api_key.get("BearerToken")
    return token


async def test_a_token_of_a_kubeconfig_is_sent(tmp_path: Path) -> None:
    credentials = Credentials(kubeconfig(tmp_path / "config", {"token": SECRET}), None, {})
    assert await token_of(credentials) == f"Bearer {SECRET}"
    assert SECRET not in repr(credentials) + repr(await credentials.load())


async def test_a_tokens_file_is_read_again_and_its_last_line_may_end(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    credentials = Credentials(kubeconfig(tmp_path / "config", {"tokenFile": str(file)}), None, {})
    before = await credentials.load()
    assert await token_of(credentials) == "Bearer first"
    file.write_text("second\n")
    assert await token_of(credentials) == "Bearer second"
    assert (await credentials.load()).fingerprint == before.fingerprint


async def test_a_rewritten_kubeconfig_counts_when_the_old_one_no_longer_does(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "first"})
    credentials = Credentials(path, None, {})
    assert await token_of(credentials) == "Bearer first"
    kubeconfig(path, {"token": "second"})
    assert await token_of(credentials, afresh=True) == "Bearer second"


async def test_other_certificates_mean_other_connections(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("one")
    path = kubeconfig(tmp_path / "config", {"token": "t"})
    content = read_yaml(path.read_text())
    content["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", "certificate-authority": str(ca)}
    path.write_text(yaml.safe_dump(content))
    credentials = Credentials(path, None, {})
    before = (await credentials.load()).fingerprint
    assert (await credentials.load()).fingerprint == before
    ca.write_text("two")
    assert (await credentials.load()).fingerprint != before


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """A user that an exec plugin speaks for; every run of it leaves a line in `runs`."""
    program = folder / "plugin"
    program.write_text(f"#!/bin/sh\necho run >> {folder}/runs\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}


@pytest.mark.parametrize("expiry", [{}, {"expirationTimestamp": "2999-01-01T00:00:00Z"}], ids=["none", "far"])
async def test_a_plugin_is_asked_again_only_when_its_answer_no_longer_holds(
    tmp_path: Path, expiry: dict[str, str]
) -> None:
    status = {"token": SECRET, **expiry}
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    user = plugin(tmp_path, f"echo '{json.dumps(said)}'")
    credentials = Credentials(kubeconfig(tmp_path / "config", user), None, {})
    for _ in range(3):
        assert await token_of(credentials) == f"Bearer {SECRET}"
    assert (tmp_path / "runs").read_text().count("run") == 1
    assert await token_of(credentials, afresh=True) == f"Bearer {SECRET}"
    assert (tmp_path / "runs").read_text().count("run") == 2


@pytest.mark.parametrize("script", ["exit 3", "echo not JSON", f"echo {SECRET} >&2; exit 1"])
async def test_a_plugin_that_gives_nothing_is_told_without_its_words(tmp_path: Path, script: str) -> None:
    credentials = Credentials(kubeconfig(tmp_path / "config", plugin(tmp_path, script)), None, {})
    with pytest.raises(ClusterUnavailableError, match="kubectl") as told:
        await credentials.load()
    assert SECRET not in str(told.value)


def service_account(folder: Path, token: str) -> ServiceAccountFiles:
    """What a cluster mounts into a pod."""
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    return ServiceAccountFiles(folder / "token", folder / "ca.crt")


INSIDE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_inside_a_cluster_the_service_accounts_token_is_read_as_it_rotates(tmp_path: Path) -> None:
    credentials = Credentials(None, None, INSIDE, service_account(tmp_path, "first"))
    access = await credentials.load()
    assert access.configuration.host == "https://10.0.0.1:443"
    assert await token_of(credentials) == "bearer first"
    service_account(tmp_path, "second\n")
    assert await token_of(credentials) == "bearer second"
    (tmp_path / "token").unlink()
    with pytest.raises(ClusterUnavailableError, match="service account"):
        await credentials.load()


def test_a_kubeconfig_that_is_named_goes_before_the_service_account(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "t"})
    assert Credentials(path, None, INSIDE, service_account(tmp_path, "t")).origin == str(path)
    assert Credentials(None, None, INSIDE, service_account(tmp_path, "t")).origin == "this pod's service account"
    assert Credentials(None, None, {"KUBECONFIG": str(path)}).origin == str(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "There is no kubeconfig"),
        ("", "is not one"),
        ("[]", "is not one"),
        (f"{{token: {SECRET}", "is not one"),
        (f"just {SECRET}", "is not one"),
        ("apiVersion: v1\nclusters: []\n", "does not say where to go"),
        ("current-context: here\ncontexts: [{name: here, context: {cluster: c}}]\nclusters: []\n", "does not say"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_is_refused_without_its_content(
    tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KubeconfigError, match=why) as told:
        Credentials(path, None, {})
    assert str(path) in str(told.value)
    assert "GPU_DEV_KUBERNETES__" in str(told.value)
    assert SECRET not in str(told.value)


def test_a_context_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": SECRET})
    with pytest.raises(KubeconfigError, match="GPU_DEV_KUBERNETES__CONTEXT") as told:
        Credentials(path, "elsewhere", {})
    assert SECRET not in str(told.value)


async def test_a_server_that_is_named_is_asked_instead(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "first"})
    credentials = Credentials(path, None, {}, server="https://10.0.0.1:6443/")
    access = await credentials.load()
    assert access.configuration.host == "https://10.0.0.1:6443"
    assert access.fingerprint != (await Credentials(path, None, {}).load()).fingerprint
    assert await token_of(credentials) == "Bearer first"


async def test_who_names_a_server_alone_asks_it_as_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    credentials = Credentials(None, None, {}, server="http://127.0.0.1:8001")
    access = await credentials.load()
    assert (access.configuration.host, access.configuration.api_key) == ("http://127.0.0.1:8001", {})
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", {"token": "mine"})
    assert await token_of(Credentials(None, None, {}, server="http://127.0.0.1:8001")) == "Bearer mine"


@pytest.mark.parametrize("environment", [{}, {"KUBECONFIG": "/no/such/file"}])
def test_where_nothing_says_where_to_go_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(KubeconfigError, match="There is no kubeconfig"):
        Credentials(None, None, environment, server="http://127.0.0.1:8001" if environment else None)
