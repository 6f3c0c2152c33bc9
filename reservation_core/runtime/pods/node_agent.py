"""Run a node agent from settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError
from reservation_core.adapters.kubernetes.nodes.node_agent import NodeAgent, NodeAgentError
from reservation_core.adapters.local.inventory import BadGpusSettingError, LocalInventory
from reservation_core.runtime.gpu_use import open_driver
from reservation_core.runtime.http.serving import open_socket, serve_beside
from reservation_core.runtime.kubernetes import open_transport
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.pods.sample_server import create_app
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.settings.components import NodeAgentSettings
from reservation_core.runtime.settings.error import SettingsError


async def run_node_agent(settings: NodeAgentSettings, *, once: bool) -> None:
    """Write this node's GPUs to its Node object: once, or regularly until SIGTERM, telling their use meanwhile.

    Raises SettingsError without GPUs, node or permission, and ClusterUnavailableError when the driver or the API server
    does not answer; in the loop only the first time.
    """
    try:
        # Simulated GPUs are named after the node, as the pod's own name changes with every restart.
        node = settings.node_name[:63].strip("-.")
        inventory = LocalInventory(settings.local_gpus, node)
        transport = open_transport(settings)
        try:
            agent = NodeAgent(transport, settings.node_name, inventory)
            if once:
                await agent.update()
            else:
                async with serving_samples(settings, node):
                    await keep_node_annotations(agent, stop_on_signals(), settings.look_every_s)
        finally:
            await transport.close()
            await asyncio.to_thread(inventory.close)
    except (KubeconfigError, NodeAgentError, BadGpusSettingError) as error:
        raise SettingsError(str(error)) from error


@asynccontextmanager
async def serving_samples(settings: NodeAgentSettings, node: str) -> AsyncIterator[None]:
    """Answer how this node's GPUs are used during the block, if the settings say where. Raises SettingsError."""
    if settings.samples_listen is None:
        yield
        return
    sampler = open_driver(settings, node)
    opened = open_socket(settings.samples_listen, "GPU_DEV_SAMPLES_LISTEN")
    try:
        app = create_app(sampler, SystemClock())
        async with beside(serve_beside(app, opened, "samples", settings.http), name="samples"):
            yield
    finally:
        opened.close()
        if sampler is not None:
            await sampler.close()


async def keep_node_annotations(agent: NodeAgent, stop: asyncio.Event, every_s: float) -> None:
    """Update the annotations every `every_s` seconds until `stop`. Raises errors of the first update alone."""
    await agent.update()
    loop = Loops()["node_cards"]
    await loop.repeat(agent.update_again, rest_s=every_s, rests_first=True, longest_s=every_s, stop=stop)
