"""The chart's registry caches, run for real: a registry with the rendered variables in front of another on loopback."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.chart.rendering import one, render
from tests.integration.deploy.registries import PROGRAM, USER, Registry, behind_tokens, push
from tests.kubernetes.real import guarded
from tests.waiting import eventually_sync

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "operating.md"
NAME = "library/tiny"

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no registry program: apt-get install docker-registry")


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Registry]:
    """The registry behind the caches."""
    made = Registry(tmp_path / "upstream", {})
    made.start()
    yield made
    made.stop()


@pytest.fixture
def cache(tmp_path: Path, upstream: Registry) -> Iterator[Registry]:
    """A cache that does not run yet."""
    made = Registry(tmp_path / "cache", variables(upstream.url))
    yield made
    made.stop()


def variables(remote: str, secret_name: str = "") -> dict[str, str]:
    """What the chart gives the container, with the Secret's values in their places."""
    values = {"registryCaches": {"dockerhub": {"remoteUrl": remote, "credentialsSecret": secret_name}}}
    documents = render("gpu-dev-server", values, name="gpu-dev", namespace="default")
    (container,) = one(documents, "Deployment", "registry-cache-dockerhub")["spec"]["template"]["spec"]["containers"]
    secret = dict(zip(("username", "password"), USER, strict=True))
    return {
        variable["name"]: variable["value"]
        if "value" in variable
        else secret[variable["valueFrom"]["secretKeyRef"]["key"]]
        for variable in container["env"]
    }


def test_what_was_pulled_once_is_served_while_the_registry_behind_is_away(upstream: Registry, cache: Registry) -> None:
    image = push(upstream, NAME, "1", "hello")
    never_pulled = push(upstream, NAME, "2", "never pulled")
    cache.start()
    paths = [f"{NAME}/manifests/1", f"{NAME}/manifests/{image.manifest}", f"{NAME}/blobs/{image.layer}"]
    first = [cache.get(path).raise_for_status().content for path in paths]
    eventually_sync(lambda: cache.blobs() >= {image.manifest, image.layer})
    upstream.stop()
    assert [cache.get(path).raise_for_status().content for path in paths] == first
    assert cache.get(f"{NAME}/blobs/{never_pulled.layer}").status_code >= 400


def test_a_tag_that_moves_is_followed(upstream: Registry, cache: Registry) -> None:
    push(upstream, NAME, "1", "before")
    cache.start()
    cache.get(f"{NAME}/manifests/1").raise_for_status()
    after = push(upstream, NAME, "1", "after")
    assert cache.get(f"{NAME}/manifests/1").headers["Docker-Content-Digest"] == after.manifest


def test_nobody_changes_what_a_cache_holds(upstream: Registry, cache: Registry) -> None:
    image = push(upstream, NAME, "1", "hello")
    cache.start()
    cache.get(f"{NAME}/manifests/1").raise_for_status()
    for method, path in (
        ("DELETE", f"{NAME}/manifests/{image.manifest}"),
        ("DELETE", f"{NAME}/blobs/{image.layer}"),
        ("POST", f"{NAME}/blobs/uploads/"),
    ):
        assert httpx.request(method, f"{cache.url}/v2/{path}").status_code == 405


def test_the_secrets_user_pulls_what_the_registry_behind_gives_only_to_that_user(
    tmp_path: Path, upstream: Registry
) -> None:
    image = push(upstream, NAME, "1", "private")
    with behind_tokens(upstream) as (url, given):
        for secret, served in (("", False), ("hub", True)):
            cache = Registry(tmp_path / f"cache{secret}", variables(url, secret))
            try:
                cache.start()
                for path in (f"manifests/{image.manifest}", f"blobs/{image.layer}"):
                    assert cache.get(f"{NAME}/{path}").is_success is served, cache.log
            finally:
                cache.stop()
        assert {*given} == {USER[0]}


def test_layers_are_removed_a_week_after_they_were_pulled(upstream: Registry, cache: Registry) -> None:
    image = push(upstream, NAME, "1", "hello")
    cache.start()
    for path in (f"{NAME}/manifests/1", f"{NAME}/blobs/{image.layer}"):
        cache.get(path).raise_for_status()
    eventually_sync(lambda: cache.state.exists() and image.layer in cache.state.read_text())
    cache.stop()
    state = json.loads(cache.state.read_text())
    now = datetime.now(UTC)
    for entry in state.values():
        until = datetime.fromisoformat(re.sub(r"\.\d+", "", entry["ExpiryData"])) - now
        assert timedelta(days=6, hours=23) < until <= timedelta(days=7)
        entry["ExpiryData"] = (now - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cache.state.write_text(json.dumps(state))
    cache.start()
    eventually_sync(lambda: image.layer not in cache.blobs())
    assert "operation unsupported" not in cache.log
    # The next pull brings it back.
    cache.get(f"{NAME}/blobs/{image.layer}").raise_for_status()


def test_a_cache_does_not_start_while_the_registry_behind_is_away(upstream: Registry, cache: Registry) -> None:
    """Nothing that a setting changes; the guide says so, and nodes go past it then."""
    upstream.stop()
    process = cache.launch()
    assert process.wait(60) != 0
    assert "connection refused" in cache.log


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[Path]:
    """containerd without anything that runs containers: its socket."""
    program = shutil.which("containerd")
    if program is None or shutil.which("ctr") is None:
        pytest.skip("no containerd: apt-get install containerd")
    socket = tmp_path / "containerd.sock"
    (tmp_path / "containerd.toml").write_text(
        f'version = 2\nroot = "{tmp_path}/root"\nstate = "{tmp_path}/state"\n'
        'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\n  address = "{socket}"\n'
    )
    log = tmp_path / "containerd.log"
    process = guarded.start([program, "--config", str(tmp_path / "containerd.toml")], log)
    try:
        eventually_sync(lambda: socket.exists() and "containerd successfully booted" in log.read_text())
        yield socket
    finally:
        guarded.end(process)


def test_containerd_pulls_by_the_file_of_the_guide_and_past_a_cache_that_is_away(
    tmp_path: Path, upstream: Registry, cache: Registry, containerd: Path
) -> None:
    image = push(upstream, NAME, "1", "hello")
    cache.start()
    (text,) = re.findall(r"```\n(server = \"https://ghcr.io\"\n.*?)```", GUIDE.read_text(), re.DOTALL)
    folder = tmp_path / "certs.d" / "ghcr.io"
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text(text.replace("http://CLUSTER-IP:5000", cache.url))

    def pull(reference: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "-a", str(containerd), "content", "fetch", "--hosts-dir", str(folder.parent), reference]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    for reference in (f"ghcr.io/{NAME}:1", f"ghcr.io/{NAME}@{image.manifest}"):
        pulled = pull(reference)
        assert pulled.returncode == 0, pulled.stderr
    eventually_sync(lambda: image.layer in cache.blobs())

    # `server` is asked for what no host has. The public one is out of reach here, so it is the one on loopback.
    cache.stop()
    later = push(upstream, NAME, "2", "later")
    (folder / "hosts.toml").write_text(
        text.replace("http://CLUSTER-IP:5000", cache.url).replace("https://ghcr.io", upstream.url)
    )
    pulled = pull(f"ghcr.io/{NAME}:2")
    assert pulled.returncode == 0, pulled.stderr
    listed = subprocess.check_output(["ctr", "-a", str(containerd), "content", "ls", "-q"], text=True)
    assert later.layer in listed
