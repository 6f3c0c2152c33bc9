"""A cluster to try things on: API server, kubelet and scheduler until Ctrl-C. Prints the administrator's kubeconfig.

`python -m tests.kubernetes.by_hand --nodes 4 --gpus 8`; with `--pretend SECONDS` containers run nothing and end after
so long (0: when they are told to).
"""

import argparse
import asyncio
import signal
import tempfile
import threading
from pathlib import Path

from tests.kubernetes.api_server import make_namespace, started_api_server
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.kubernetes.scheduler import Scheduler


def main() -> None:
    """Run until a signal comes."""
    asks = argparse.ArgumentParser(description=__doc__)
    asks.add_argument("--nodes", type=int, default=4)
    asks.add_argument("--gpus", type=int, default=8)
    asks.add_argument("--namespace", default="gpu-dev")
    asks.add_argument("--pretend", type=float)
    asked = asks.parse_args()
    nodes = [NodeSpec(f"node{number}", gpus=asked.gpus) for number in range(1, asked.nodes + 1)]
    enough = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: enough.set())
    with tempfile.TemporaryDirectory() as folder, started_api_server(Path(folder)) as server:
        asyncio.run(make_namespace(server, asked.namespace))
        with Kubelet(server, nodes, pretend_s=asked.pretend, resolve=True), Scheduler(server):
            print(f"KUBECONFIG={server.kubeconfig}", flush=True)
            enough.wait()


if __name__ == "__main__":
    main()
