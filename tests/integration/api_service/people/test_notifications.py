"""Being told, as people see it: targets, codes, tests and preferences over REST, and what arrives then."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from reservation_core.adapters.postgres.people.notices import Notices
from reservation_core.domain.notices.kinds import NoticeKind
from reservation_core.ports.people.notices import NoticeRoutes
from reservation_core.ports.queues import QueueName
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.notices import notice_senders
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.settings.notices import NoticeSettings, SmtpSettings
from reservation_core.runtime.wiring import Runtime
from reservation_processor.notifying import notify
from tests.integration.api_service.callers import submitted
from tests.network.receivers import MailBox, Received, Receiver, mail_server, receiving
from tests.waiting import eventually

TARGETS = "/v1/notifications/targets"
PREFERENCES = "/v1/notifications/preferences"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


@pytest.fixture
async def mails() -> AsyncIterator[MailBox]:
    async with mail_server() as found:
        yield found


@asynccontextmanager
async def telling(runtime: Runtime, mails: MailBox) -> AsyncIterator[None]:
    """Notices are delivered while the block runs."""
    settings = ProcessorSettings(
        notices=NoticeSettings(allow=("127.0.0.0/8",), sweep_s=0.05, first_pause_s=0.1),
        smtp=SmtpSettings.model_validate(
            {"host": "127.0.0.1", "port": mails.port, "security": "none", "sender": "gpu-dev@lab.example"}
        ),
    )
    async with delivering(runtime, settings):
        yield


@asynccontextmanager
async def delivering(runtime: Runtime, settings: ProcessorSettings) -> AsyncIterator[None]:
    """The same by a processor with these settings."""
    stop = asyncio.Event()
    senders = notice_senders(settings, runtime.clock)
    task = asyncio.create_task(notify(runtime, settings.notices, senders, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def added(client: httpx.AsyncClient, channel: str, address: str) -> dict[str, Any]:
    answer = await client.post(TARGETS, json={"channel": channel, "address": address})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def listed(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(TARGETS)).json()["items"]
    return found


def arrived(receiver: Receiver, path: str) -> Callable[[], list[Received]]:
    return lambda: [got for got in receiver.got if got.path == path]


async def test_a_person_is_told_by_mail_slack_and_webhook(
    alice: httpx.AsyncClient, runtime: Runtime, receiver: Receiver, mails: MailBox
) -> None:
    async with telling(runtime, mails):
        mail = await added(alice, "email", "alice@example.org")
        hook = await added(alice, "webhook", receiver.url("/hook?key=hunter2"))
        slack = await added(alice, "slack", receiver.url("/services/T0/B0/hunter2"))
        assert [target["status"] for target in (mail, hook, slack)] == ["unverified", "ready", "ready"]
        assert hook["secret"].startswith("whsec_")
        assert (mail["secret"], slack["secret"]) == (None, None)
        for shown in (await alice.get(TARGETS), await alice.get(f"{TARGETS}?user=alice")):
            assert "hunter2" not in shown.text
            assert hook["secret"] not in shown.text
            assert len(shown.json()["items"]) == 3

        # Nothing but the code goes to an address that nobody has confirmed.
        await eventually(lambda: mails.mails)
        code = next(word for word in str(mails.mails[0]).split() if word.startswith("code-"))
        wrong = await alice.post(f"{TARGETS}/{mail['id']}/verify", json={"code": "code-00000000"})
        assert (wrong.status_code, wrong.json()["type"]) == (422, "urn:gpu-dev:problem:wrong_code")
        job = await submitted(alice)
        await alice.post(f"/v1/jobs/{job['id']}/cancel")
        await eventually(arrived(receiver, "/hook?key=hunter2"))
        await eventually(arrived(receiver, "/services/T0/B0/hunter2"))
        assert len(mails.mails) == 1

        right = await alice.post(f"{TARGETS}/{mail['id']}/verify", json={"code": code})
        assert (right.status_code, right.json()["status"]) == (200, "ready")
        job = await submitted(alice, name="<b>train</b>")
        await alice.post(f"/v1/jobs/{job['id']}/cancel")
        await eventually(lambda: len(mails.mails) == 2)
        assert mails.mails[1]["Subject"] == f"[gpu-dev] {job['id']} (<b>train</b>): cancelled"
        assert mails.recipients == [["alice@example.org"]] * 2


async def test_a_test_arrives_at_once_a_minute_and_the_target_says_how_it_went(
    alice: httpx.AsyncClient, runtime: Runtime, receiver: Receiver, mails: MailBox
) -> None:
    async with telling(runtime, mails):
        target = await added(alice, "webhook", receiver.url())
        receiver.statuses = [404]
        sent = await alice.post(f"{TARGETS}/{target['id']}/test")
        assert sent.status_code == 202
        await eventually(lambda: receiver.got)
        assert receiver.got[0].delivery == sent.json()["delivery"]

        async def said() -> bool:
            [shown] = await listed(alice)
            return shown["status"] == "failing" and "404" in shown["failure"]

        await eventually(said)
        again = await alice.post(f"{TARGETS}/{target['id']}/test")
        assert (again.status_code, again.json()["type"]) == (422, "urn:gpu-dev:problem:limit_exceeded")


async def test_deliveries_do_not_wait_until_routes_are_said(
    alice: httpx.AsyncClient, runtime: Runtime, receiver: Receiver, mails: MailBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unwritable(_self: Notices, _routes: NoticeRoutes) -> None:
        raise DatabaseUnavailableError("no")

    with monkeypatch.context() as patched:
        patched.setattr(Notices, "set_routes", unwritable)
        async with telling(runtime, mails):
            target = await added(alice, "webhook", receiver.url())
            assert (await alice.post(f"{TARGETS}/{target['id']}/test")).status_code == 202
            await eventually(lambda: receiver.got)
            await eventually(lambda: runtime.loops["notice_routes"].failures)
            patched.undo()
            await eventually(partial(_routes_are_known, runtime))


async def test_what_is_not_wanted_does_not_come(
    alice: httpx.AsyncClient, runtime: Runtime, receiver: Receiver, mails: MailBox
) -> None:
    kinds = (await alice.get(PREFERENCES)).json()["kinds"]
    assert set(kinds) == {kind.value for kind in NoticeKind}
    assert kinds["started"] == []
    assert kinds["cancelled"] == ["email", "slack", "webhook"]
    await added(alice, "webhook", receiver.url())
    answer = await alice.put(PREFERENCES, json={"kinds": {"cancelled": ["email"]}})
    assert answer.json()["kinds"] == kinds | {"cancelled": ["email"]}
    job = await submitted(alice)
    await alice.post(f"/v1/jobs/{job['id']}/cancel")
    async with runtime.uow() as uow:
        depths = {m.queue: m.depth for m in await uow.queue.metrics()}
    assert depths[QueueName.NOTIFICATIONS.value] == 0


async def test_preferences_are_changed_only_as_they_were_seen(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    seen = (await alice.get(PREFERENCES)).headers["etag"]
    first = await alice.put(PREFERENCES, json={"kinds": {"ended": ["email"]}}, headers={"If-Match": seen})
    assert (first.status_code, first.headers["etag"]) == (200, (await alice.get(PREFERENCES)).headers["etag"])
    assert first.headers["etag"] != seen
    late = await alice.put(PREFERENCES, json={"kinds": {"ended": []}}, headers={"If-Match": seen})
    assert (late.status_code, late.json()["type"]) == (412, "urn:gpu-dev:problem:stale_version")
    assert (await alice.get(PREFERENCES)).json() == first.json()
    for header in (first.headers["etag"], "*"):
        again = await alice.put(PREFERENCES, json={"kinds": {"ended": ["email"]}}, headers={"If-Match": header})
        assert again.status_code == 200
    assert (await alice.put(PREFERENCES, json={"kinds": {}}, headers={"If-Match": "once"})).status_code == 400
    # Of two who have seen the same, one is told so.
    seen = (await bob.get(PREFERENCES)).headers["etag"]
    both = await asyncio.gather(
        *(bob.put(PREFERENCES, json={"kinds": {kind: []}}, headers={"If-Match": seen}) for kind in ("ended", "started"))
    )
    assert sorted(answer.status_code for answer in both) == [200, 412]
    # Empty preferences have a version, too.
    nothing = await bob.put(PREFERENCES, json={"kinds": {kind.value: [] for kind in NoticeKind}})
    assert (nothing.status_code, nothing.headers["etag"]) == (200, (await bob.get(PREFERENCES)).headers["etag"])


async def test_preferences_are_put_as_they_were_read(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    async with runtime.uow() as uow:
        await uow.notices.set_routes(NoticeRoutes(False, (), public=True))
    seen = await alice.get(PREFERENCES)
    assert seen.json()["unavailable"] == ["email"]
    for sent in (seen.json(), seen.json() | {"unavailable": []}):
        put = await alice.put(PREFERENCES, json=sent)
        assert (put.status_code, put.json()) == (200, seen.json())


async def test_a_secret_is_shown_once_also_to_who_repeats_the_request(alice: httpx.AsyncClient) -> None:
    body = {"channel": "webhook", "address": "https://hooks.example.org/x"}
    key = {"Idempotency-Key": "once"}
    first = (await alice.post(TARGETS, json=body, headers=key)).json()
    second = (await alice.post(TARGETS, json=body, headers=key)).json()
    assert first["secret"]
    assert second == first | {"secret": None}
    assert len(await listed(alice)) == 1


async def test_an_administrator_sees_that_a_target_exists_and_can_remove_it(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    made = await added(alice, "slack", "https://hooks.slack.com/services/T0/B0/hunter2")
    [seen] = await listed(root)
    assert (seen["id"], seen["user"], seen["address"]) == (made["id"], "alice", "https://hooks.slack.com/…")
    assert await listed(bob) == []
    assert (await bob.get(f"{TARGETS}?user=alice")).json()["items"] == []
    assert (await root.delete(f"{TARGETS}/{made['id']}")).status_code == 200
    assert await listed(alice) == []
    assert (await alice.delete(f"{TARGETS}/{made['id']}")).status_code == 404


@pytest.mark.parametrize(
    ("channel", "address"),
    [
        ("email", "ada"), ("email", "ada@"), ("email", "@example.org"), ("email", "a b@example.org"),
        ("email", "ada@example.org\nBcc: eve@example.org"), ("email", "ada@example.org,eve@example.org"),
        ("email", "Ada <ada@example.org>"), ("email", '"a b"@example.org'), ("email", "ada@exämple.org"),
        ("email", "x" * 65 + "@example.org"), ("email", "ada@example.org "), ("email", "ada@-example.org"),
        ("webhook", "ftp://example.org/"), ("webhook", "file:///etc/passwd"), ("webhook", "https://"),
        ("webhook", "https://user:pw@example.org/"), ("webhook", "https://example.org/#x"),
        ("webhook", "https://example.org/\r\nX: y"), ("webhook", "https://example.org:99999/"),
        ("webhook", "https://exa mple.org/"), ("webhook", "https://example.org\\@evil.org/"),
        ("webhook", "gopher://x"), ("webhook", "//example.org/"), ("webhook", "https://[::1/"),
        ("slack", "javascript:alert(1)"), ("pigeon", "https://example.org/"),
    ],
)  # fmt: skip
async def test_addresses_that_are_none_are_refused(alice: httpx.AsyncClient, channel: str, address: str) -> None:
    answer = await alice.post(TARGETS, json={"channel": channel, "address": address})
    assert answer.status_code == 422
    assert answer.json()["broken_rules"]
    assert await listed(alice) == []


@pytest.mark.parametrize(
    ("channel", "address", "says"),
    [
        ("email", "ada@example.org", "GPU_DEV_SMTP__HOST"),
        ("slack", "https://127.0.0.1/services/T0", "GPU_DEV_NOTICES__ALLOW"),
        ("webhook", "https://localhost:8443/", "GPU_DEV_NOTICES__ALLOW"),
        ("webhook", "http://hooks.example.org/", "https"),
    ],
)
async def test_a_target_that_no_notification_could_reach_is_refused_with_what_is_missing(
    alice: httpx.AsyncClient, runtime: Runtime, channel: str, address: str, says: str
) -> None:
    before = await added(alice, channel, address)
    async with delivering(runtime, ProcessorSettings()):
        await eventually(partial(_routes_are_known, runtime))
        answer = await alice.post(TARGETS, json={"channel": channel, "address": address})
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:gpu-dev:problem:unreachable_target")
        assert says in answer.json()["detail"]
        tried = await alice.post(f"{TARGETS}/{before['id']}/test")
        assert (tried.status_code, tried.json()["detail"]) == (409, answer.json()["detail"])
    assert [target["id"] for target in await listed(alice)] == [before["id"]]


async def test_what_processors_can_reach_is_known_as_the_last_of_them_has_it(
    alice: httpx.AsyncClient, runtime: Runtime, mails: MailBox
) -> None:
    async with delivering(runtime, ProcessorSettings()):
        await eventually(partial(_routes_are_known, runtime))
    async with telling(runtime, mails):

        async def accepted() -> bool:
            return (
                await alice.post(TARGETS, json={"channel": "email", "address": "ada@example.org"})
            ).status_code == 201

        await eventually(accepted)
        await added(alice, "slack", "http://127.0.0.1/services/T0")


async def _routes_are_known(runtime: Runtime) -> bool:
    async with runtime.uow() as uow:
        return await uow.notices.routes() is not None


async def test_the_dead_letters_of_notices_can_be_looked_at_and_sent_again(
    root: httpx.AsyncClient, runtime: Runtime
) -> None:
    async with runtime.uow() as uow:
        await uow.queue.send(QueueName.NOTIFICATIONS, [{"v": 1, "kind": "nonsense"}])
        [message] = await uow.queue.read(QueueName.NOTIFICATIONS, visibility=timedelta(seconds=9), limit=1)
        await uow.queue.bury(QueueName.NOTIFICATIONS, message, "no")
    found = (await root.get("/v1/dead-letters?queue=notifications")).json()["items"]
    assert [letter["error"] for letter in found] == ["no"]
    assert (await root.post("/v1/dead-letters/notifications/redrive")).json() == {"count": 1}
