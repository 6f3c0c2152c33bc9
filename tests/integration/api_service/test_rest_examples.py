"""Every call of REST has an example in the reference, recorded here from a server that works.

`GPU_DEV_TESTS_RECORD=1` writes them anew; `make reference` then makes the page of them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from reservation_core.runtime.sealing_keys import ensure_key_file
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.settings.notices import NoticeSettings, SmtpSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_processor.process import run as process
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.integration.api_service.people.newcomers import by_id_token
from tests.integration.api_service.rest_examples import FILE, RECORDS, Recorder, fits, shape, whole_hour
from tests.integration.api_service.rest_story import Client, Story
from tests.network.receivers import MailBox, Receiver, mail_server, receiving
from tests.people.sign_in_world import SignInWorld
from tests.pods import end_all_pods


@pytest.fixture
async def mails() -> AsyncIterator[MailBox]:
    async with mail_server() as found:
        yield found


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


@pytest.fixture
def standalone(tmp_path: Path, mails: MailBox) -> StandaloneSettings:
    """Two nodes of four GPUs, and a mail server."""
    return StandaloneSettings(
        home=tmp_path / "home",
        access_log="",
        local_gpus="node1=h100:4;node2=h100:4",
        local_cpus=64,
        local_memory=512 * 2**30,
        secrets_key_file=ensure_key_file(tmp_path),
        end_grace_s=1,
        sweep_s=0.1,
        estimate_s=0.1,
        notices=NoticeSettings(allow=("127.0.0.0/8",), sweep_s=0.1),
        smtp=SmtpSettings.model_validate(
            {"host": "127.0.0.1", "port": mails.port, "security": "none", "sender": "gpu-dev@lab.example"}
        ),
    )


@pytest.fixture
async def runtime(database_url: str, standalone: StandaloneSettings) -> AsyncIterator[Runtime]:
    async with open_runtime(standalone, database_url) as opened:
        try:
            yield opened
        finally:
            await end_all_pods(opened.cluster)


@pytest.fixture
def settings(standalone: StandaloneSettings) -> StandaloneSettings:
    return standalone


@asynccontextmanager
async def working(runtime: Runtime, settings: StandaloneSettings) -> AsyncIterator[None]:
    """Jobs are run and notifications are sent while the block runs."""
    stop = asyncio.Event()
    processing = asyncio.create_task(process(runtime, settings, stop))
    try:
        yield
    finally:
        stop.set()
        await processing


async def silence(runtime: Runtime, node: str) -> None:
    """As if a node had not answered for a while."""
    from tests.integration.api_service.bookings.calendars import node_report

    reports = [node_report(name, "h100", 4, ready=name != node) for name in ("node1", "node2")]
    async with runtime.uow() as uow:
        await uow.inventory.update(reports, [], runtime.clock.now())


async def test_every_call_answers_as_its_example_says(
    calling: Client,
    newcomer: httpx.AsyncClient,
    world: SignInWorld,
    runtime: Runtime,
    standalone: StandaloneSettings,
    mails: MailBox,
    receiver: Receiver,
) -> None:
    await add_nodes(runtime, node1=("h100", 4), node2=("h100", 4))
    recorder = Recorder(whole_hour(runtime.clock.now()), receiver.url("").rstrip("/"))
    story = Story(calling, recorder, runtime)
    async with working(runtime, standalone):
        parts: list[Callable[[], Awaitable[None]]] = [
            story.people,
            story.ssh_keys,
            story.secrets,
            story.disks,
            story.files,
            story.policy,
            story.jobs,
            story.bookings,
            story.nodes,
        ]
        for part in parts:
            await part()
        await silence(runtime, "node2")
        await story.silent_node()
        await story.notifications(mails, receiver)
        await story.services()
        await story.history()
    claims = world.issuer.claims(runtime.clock.now())
    await recorder.call(newcomer, "POST /v1/login", by_id_token(world.issuer.token(claims)))
    examples = recorder.tidy()
    if RECORDS:
        FILE.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    assert recorded.keys() == examples.keys()
    for call, example in examples.items():
        before, now = (shape({**one, "path": ""}) for one in (recorded[call], example))
        assert fits(before, now), f"{call}: GPU_DEV_TESTS_RECORD=1 records it anew\n{before}\n{now}"
        assert recorded[call]["status"] == example["status"], call
