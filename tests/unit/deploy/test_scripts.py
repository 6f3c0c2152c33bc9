"""The scripts of the setup guide, as a person runs them."""

import os
import subprocess
from pathlib import Path

import pytest

from reservation_core.adapters.certificates.pairs import read_serving
from tests.people.certificate_keys import key_fits
from tests.read_yaml import read_yaml

FOLDER = Path(__file__).parents[3] / "deploy" / "scheduling-map"

# Stands for kubectl before a cluster whose answers are files: `nodes`, and of each pod where it is and what it says.
_KUBECTL = """#!/bin/sh
case "$1 $2" in
    "apply -f") [ -f "$3" ] ;;
    "get nodes")
        case "$4" in
            gpu-node-name=*) sed -n "s/^${4#gpu-node-name=} //p" "$STATE/nodes" ;;
            *) cat "$STATE/nodes" ;;
        esac ;;
    "get pod") [ "$3" = -o ] || cat "$STATE/$3.node" 2>/dev/null ;;
    logs*) cat "$STATE/$2.log" 2>/dev/null ;;
    *) : ;;
esac
"""
MAP = {0: ("node1", "0,1"), 1: ("node2", "2"), 2: ("node3", "0,1,2"), 3: ("node4", "3"), 4: ("node4", "3")}


def _run(folder: Path, timeout_s: int = 20) -> subprocess.CompletedProcess[str]:
    kubectl = folder / "kubectl"
    kubectl.write_text(_KUBECTL)
    kubectl.chmod(0o755)
    variables = {
        "PATH": os.environ["PATH"], "STATE": str(folder), "KUBECTL": str(kubectl), "TIMEOUT_S": str(timeout_s),
        "REPORT": str(folder / "report.txt"),
    }  # fmt: skip
    return subprocess.run(
        ["sh", str(FOLDER / "test_script.sh")], env=variables, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Five pods as the map wants them; node4 has no label and is found by its own name."""
    (tmp_path / "nodes").write_text("".join(f"node{number} worker-{number}\n" for number in range(1, 4)))
    for index, (name, devices) in MAP.items():
        own = name if name == "node4" else name.replace("node", "worker-")
        (tmp_path / f"gpu-scheduler-check-{index}.node").write_text(own)
        said = f"Node Name: {own}\nCUDA_VISIBLE_DEVICES: {devices}\n---\n"
        (tmp_path / f"gpu-scheduler-check-{index}.log").write_text(said)
    return tmp_path


def test_all_is_well(cluster: Path) -> None:
    done = _run(cluster)
    assert done.returncode == 0, done.stderr
    report = (cluster / "report.txt").read_text()
    assert report == done.stdout
    assert report.count(": ok\n") == 5
    assert "gpu-scheduler-check-2: worker-3 (node3), CUDA_VISIBLE_DEVICES=0,1,2: ok" in report


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("gpu-scheduler-check-1.node", "worker-1", "FAILED: on worker-1 with CUDA_VISIBLE_DEVICES=2"),
        ("gpu-scheduler-check-1.log", "CUDA_VISIBLE_DEVICES: 0\n", "FAILED: on worker-2 with CUDA_VISIBLE_DEVICES=0"),
        ("gpu-scheduler-check-4.log", "", "FAILED: on node4 with CUDA_VISIBLE_DEVICES=nothing"),
    ],
)
def test_what_is_wrong_is_told(cluster: Path, file: str, text: str, words: str) -> None:
    (cluster / file).write_text(text)
    done = _run(cluster, timeout_s=1)
    assert done.returncode == 1
    assert words in done.stdout
    assert done.stdout.count(": ok\n") == 4


def test_the_guides_certificates(tmp_path: Path) -> None:
    out = tmp_path / "certs"
    variables = {"PATH": os.environ["PATH"], "OUT": str(out), "DAYS": "30"}
    script = FOLDER / "generate-webhook-certs.sh"
    done = subprocess.run(["sh", str(script)], env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    certificate, key = (out / "tls.crt").read_bytes(), (out / "tls.key").read_bytes()
    authority = (out / "ca.crt").read_bytes()
    assert key_fits(certificate, key)
    assert "gpu-scheduler-webhook.gpu-scheduler-system.svc" in read_serving(certificate, authority).names
    assert (out / "tls.key").stat().st_mode & 0o077 == 0
    assert b"PRIVATE KEY" not in authority
    secret = read_yaml((out / "webhook-tls-secret.yaml").read_text())
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "gpu-scheduler-webhook-tls")
