"""`python -m availability_updater [--node-agent [--once]]`."""

import argparse
import sys
from functools import partial

from availability_updater.update import run_once
from reservation_core.runtime.processes.programs import run_program
from reservation_core.runtime.settings.components import NodeAgentSettings, UpdaterSettings
from reservation_core.runtime.wiring import open_runtime


async def main(settings: UpdaterSettings) -> None:
    """Look once."""
    wait_s = settings.database_wait_s
    async with open_runtime(settings, application="availability_updater", wait_s=wait_s) as runtime:
        await run_once(runtime, settings.kept_for_cpu_jobs)


async def annotate_node(settings: NodeAgentSettings, *, once: bool) -> None:
    """Write this node's cards into its Node object."""
    from reservation_core.runtime.pods.node_agent import run_node_agent  # noqa: PLC0415 -- loads the Kubernetes client

    await run_node_agent(settings, once=once)


def start(arguments: list[str]) -> int:
    """Run as one or the other; returns the exit code."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--node-agent", action="store_true")
    chosen, others = parser.parse_known_args(arguments)
    if not chosen.node_agent:
        return run_program(
            "availability_updater",
            "Reads nodes and GPUs from the cluster into the database, once. With --node-agent it runs on a Kubernetes"
            " node and writes into its Node object which GPUs it has.",
            UpdaterSettings,
            main,
            arguments,
        )
    once = "--once" in others
    return run_program(
        "availability_updater --node-agent",
        "Writes which GPUs this Kubernetes node (NODE_NAME) has into its Node object, again whenever that changes;"
        " with --once a single time.",
        NodeAgentSettings,
        partial(annotate_node, once=once),
        [argument for argument in others if argument != "--once"],
    )


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
