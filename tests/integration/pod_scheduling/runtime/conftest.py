"""Cards on an API server, and an extender that serves them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from pod_scheduling.runtime.extender import RunningExtender, run_extender
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from pod_scheduling.usecases.extender.rules import ExtendRules
from tests.clusters.card_cluster import CardCluster
from tests.integration.pod_scheduling.runtime.asking import PATIENCE_S, Starter
from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually


@pytest.fixture
async def cards(api_server: ApiServer, namespace: str) -> AsyncIterator[CardCluster]:
    async with api_server.client() as client:
        made = CardCluster(client, namespace)
        yield made
        await made.clean_up()


@pytest.fixture
async def start(
    api_server: ApiServer, namespace: str, cards: CardCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Starter]:
    """Begins an extender. Binds of earlier processes count for a second, where in earnest it is five."""
    monkeypatch.setattr("pod_scheduling.runtime.extender.ExtendRules", partial(ExtendRules, unclear_s=1.0))
    async with AsyncExitStack() as running:

        async def starter(
            *, wait: bool = True, url: str | None = None, database_url: str | None = None, **rules: Any
        ) -> RunningExtender:
            config = api_server.kubeconfig
            if url is not None:
                config = api_server.kubeconfig_with(api_server.admin_token, "proxied", url=url)
            settings = AdmissionSettings.model_validate(
                {
                    "database_url": database_url,
                    "kubernetes": {"kubeconfig": config},
                    "admission": {"quota_name": cards.quota_name, "lease_namespace": namespace, **rules},
                }
            )
            made = await running.enter_async_context(run_extender(settings))
            if wait:
                await eventually(made.ready, PATIENCE_S)
            return made

        yield starter
