"""What the schedulability service is asked and answers, in both shapes that there are. Nonsense is no answer.

`own` is `POST /v1/schedulability` (contracts_policy.SchedulabilityAsk). `seed` is `POST …/gpu-schedulability/`, which
knows of a user's e-mail address, and of no count.
"""

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Self, assert_never

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pod_scheduling.domain.enforcement.booking_rulings import Standing
from pod_scheduling.domain.enforcement.remembered_standings import StandingQuestion
from pod_scheduling.ports.standings import SourceSilentError
from reservation_core.contracts.schedulability import AskingPod, SchedulabilityAsk
from reservation_core.domain.cards.gpu_types import GPU_TYPE, normalised_gpu_type
from reservation_core.domain.pods.booked_nodes import MOST_NODES

_STRICT = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)
_Word = Annotated[str, Field(min_length=1, max_length=253)]
_NodeName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class QuestionShape(StrEnum):
    """The protocol of the service."""

    OWN = "own"
    SEED = "seed"


class _OwnAnswer(BaseModel):
    model_config = _STRICT

    schedulable: bool
    until: AwareDatetime | None
    gpu_type: _Word | None
    gpus: Annotated[int, Field(ge=0, le=2**31)] | None
    booking_id: Annotated[str, Field(pattern=r"^bkg-[0-9a-z]{1,32}$")] | None
    reason: Annotated[str, Field(max_length=2000)]
    nodes: Annotated[list[_NodeName], Field(max_length=MOST_NODES)] | None = None


class _SeedAnswer(BaseModel):
    model_config = _STRICT

    schedulable: bool
    until: AwareDatetime | None = None
    gpu: Annotated[str, Field(max_length=253)] | None = None

    @model_validator(mode="after")
    def _says_until_when(self) -> Self:
        if self.schedulable and "until" not in self.model_fields_set:
            raise ValueError("`until` is missing")
        return self


def can_be_asked(question: StandingQuestion, shape: QuestionShape) -> bool:
    """Whether the service accepts such a user name."""
    match shape:
        case QuestionShape.OWN:
            try:
                SchedulabilityAsk(user=question.user, namespace="n")
            except ValidationError:
                return False
            return True
        case QuestionShape.SEED:
            return 0 < len(question.user) <= 254 and question.user.isprintable()
        case _:
            assert_never(shape)


def written_question(question: StandingQuestion, shape: QuestionShape, token: str | None) -> bytes:
    """The body. In the `seed` shape it holds the token."""
    match shape:
        case QuestionShape.OWN:
            asked = SchedulabilityAsk(
                user=question.user,
                namespace=question.namespace,
                gpu_type=question.gpu_type,
                gpus=question.gpus,
                pod=AskingPod(),  # it is not there yet: what runs in the booking is not free for it
            )
            return asked.model_dump_json(exclude_none=True).encode()
        case QuestionShape.SEED:
            body = {"user_email": question.user, "namespace": question.namespace}
            return json.dumps(body if token is None else {**body, "token": token}).encode()
        case _:
            assert_never(shape)


def read_answer(body: bytes, question: StandingQuestion, shape: QuestionShape) -> Standing:
    """Read an answer. Raises SourceSilentError for what cannot be an answer to this question."""
    try:
        match shape:
            case QuestionShape.OWN:
                return _own(_OwnAnswer.model_validate_json(body), question)
            case QuestionShape.SEED:
                return _seed(_SeedAnswer.model_validate_json(body), question)
            case _:
                assert_never(shape)
    except ValidationError as problem:
        where = ".".join(str(part) for part in problem.errors(include_input=False, include_url=False)[0]["loc"])
        raise SourceSilentError(f"its answer makes no sense{f' ({where})' if where else ''}") from None
    except (OverflowError, UnicodeDecodeError):
        raise SourceSilentError("its answer makes no sense") from None


def _own(answer: _OwnAnswer, question: StandingQuestion) -> Standing:
    reason = "".join(character if character.isprintable() else " " for character in answer.reason)
    if answer.schedulable:
        other = _other_type(answer.gpu_type, question)
        if other is not None:
            return Standing(schedulable=False, reason=other)
        if answer.gpus is not None and answer.gpus < question.gpus:
            return Standing(schedulable=False, reason=f"{answer.gpus} GPUs are booked; {question.gpus} are asked for.")
    nodes = None if answer.nodes is None else tuple(answer.nodes)
    return Standing(answer.schedulable, reason, _utc(answer.until), answer.booking_id, nodes=nodes)


def _seed(answer: _SeedAnswer, question: StandingQuestion) -> Standing:
    if not answer.schedulable:
        return Standing(schedulable=False, reason=f"{question.user} has no booking of GPUs now.")
    other = _other_type(answer.gpu or None, question)
    if other is not None:
        return Standing(schedulable=False, reason=other)
    return Standing(schedulable=True, reason="GPUs are booked.", until=_utc(answer.until))


def _other_type(booked: str | None, question: StandingQuestion) -> str | None:
    """Why what is booked is not what is asked for; None where it is, or may be."""
    if booked is None or question.gpu_type is None:
        return None
    known = booked if GPU_TYPE.fullmatch(booked) else normalised_gpu_type(booked)
    return None if known == question.gpu_type else f"The booking is of {known}, not of {question.gpu_type}."


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
