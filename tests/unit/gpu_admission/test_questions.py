"""The applications of schedulers' calls."""

from starlette.types import Message

from gpu_admission.bodies import QuestionBodies
from gpu_admission.metrics import Call, CallOutcome, ExtenderMetrics
from gpu_admission.questions import ExtenderCondition, QuestionRoute
from tests.integration.gpu_admission.counting_extender import CountingExtender


async def test_an_answer_closes_a_connection_where_the_server_began_to_end_meanwhile() -> None:
    condition = ExtenderCondition()
    extender = CountingExtender({})
    sent: list[Message] = []

    async def answer(_body: bytes) -> tuple[bytes, CallOutcome]:
        condition.draining = True
        return b"{}", CallOutcome.ANSWERED

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Message) -> None:
        sent.append(message)

    metrics = ExtenderMetrics(extender.numbers, extender.problems)
    route = QuestionRoute(Call.FILTER, answer, str.encode, QuestionBodies(100, 100, 1), metrics, condition)
    scope = {"type": "http", "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")]}
    await route(scope, receive, send)
    assert (b"connection", b"close") in sent[0]["headers"]
