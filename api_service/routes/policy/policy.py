"""The policy: read its rules, explain them for a request, and (administrators) change them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from api_service.documents import IF_MATCH, answers, problems, reads
from api_service.presenting import policy
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.requests.preconditions import expected_version, version_tag
from api_service.requests.workloads import refusals_of
from api_service.services import Caller, Served, Services
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page
from reservation_core.contracts.policy import ExplainRequest, Explanation, PolicyVerdict, RuleOut, RulesIn
from reservation_core.domain.planning.request_verdicts import Outlook, VerdictReason
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.rules import RuleRequest
from reservation_core.domain.request_terms import CPU_TYPE
from reservation_core.domain.statuses import RequestVerdict, ReservationKind
from reservation_core.domain.user_names import USER_NAME, folded
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.policy.policies import StoredRule
from reservation_core.usecases.policy import change_policy
from reservation_core.usecases.policy import explain as explaining
from reservation_core.usecases.policy.outlook import Pending, decided, outlook
from reservation_core.usecases.policy.policy_preview import preview
from reservation_core.usecases.policy.read_plan import JobTerms

router = APIRouter(prefix="/v1/policy", tags=["policy"])

_USER = rf"user:{USER_NAME}"
_PROJECT = r"project:[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?"
_TYPE = r"gpu_type:[a-z0-9][a-z0-9._-]{0,62}"
ScopeInPath = Annotated[
    str,
    BeforeValidator(folded),
    Path(
        pattern=rf"^(?:default|(?:{_USER}|{_PROJECT})(?:,{_TYPE})?|{_TYPE})$",
        description="`default`, `gpu_type:…`, `project:…`, `user:…`, or the latter two with `,gpu_type:…`.",
        examples=["user:ann,gpu_type:h100"],
    ),
]
_LIST = "policy"


class RulesQuery(PageQuery):
    """Which rules to list."""

    mine: Annotated[bool, Field(description="Only the rules that apply to you, for administrators, too.")] = False


@router.post(
    "/explain",
    response_model=Explanation,
    summary="Would it start now, later or never, and why?",
    responses=problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(ExplainRequest),
)
async def explain(request: Request, services: Served, caller: Caller) -> Response:
    """Whether a job or booking would start now, be accepted and start later, or be refused; every rule that it would
    break, what holds for it and what counts against it already. Nothing is asked for by it."""
    body = await bodies.read(request, ExplainRequest, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()
    wanted = RuleRequest(
        kind=ReservationKind.JOB if body.start is None else ReservationKind.BOOKING,
        user=body.user or caller.user,
        gpus=body.gpus * body.nodes,
        duration=body.length,
        gpu_type=body.gpu_type if body.gpus else CPU_TYPE,
        project=body.project,
        start=body.starts_at,
        priority=body.priority,
        replaces=body.instead_of,
    )
    unfit = await _unfit(body, caller, services)
    # Neither is held to quotas.
    in_booking = wanted.kind is ReservationKind.JOB and (body.booking_id is not None or body.gpus == 0)
    with services.dry_run_turns.take():
        async with services.runtime.uow() as uow:
            who, disabled = await explaining.asked_for(uow, caller, body.user)
            if body.instead_of is not None:
                await explaining.check_replaced(uow, who, body.instead_of)
            found = await explaining.explain(uow, who, wanted, now, in_booking=in_booking)

        async def read(terms: JobTerms) -> Pending:
            likely, ids = services.likely_starts, services.runtime.ids
            async with services.runtime.uow() as uow:
                return await outlook(uow, who, body, terms, likely, ids, now, disabled=disabled)

        verdict = await decided(read, services.job_terms)
    if unfit:
        others = verdict.reasons if verdict.verdict is RequestVerdict.REFUSED else ()
        verdict = Outlook(RequestVerdict.REFUSED, reasons=(*unfit, *others))
    answer = Answer(200, policy.explanation(found, verdict, wanted.kind).model_dump_json().encode())

    async def act(_: UnitOfWork) -> Answer:
        return answer

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


async def _unfit(body: ExplainRequest, caller: Principal, services: Services) -> list[VerdictReason]:
    """Why this server could never run a workload, or knows no such GPUs, as submitting says it."""
    image = None if body.workload is None else body.workload.image
    gpu_type = body.gpu_type if body.start is None else None
    return [VerdictReason(error.code, error.detail) for error in await refusals_of(image, gpu_type, caller, services)]


@router.get("", response_model=Page[RuleOut], summary="List the rules", responses=problems(400))
async def list_rules(
    services: Served,
    caller: Caller,
    query: Annotated[RulesQuery, Query()],
) -> Response:
    """The rules that apply to you, by scope; for administrators all."""
    key = decode(_LIST, query.cursor, (str,))
    after = "" if key is None else str(key[0])
    async with services.runtime.uow() as uow:
        stored = await change_policy.visible(uow, caller, mine=query.mine)
    found = sorted((rule for rule in stored if str(rule.rule.scope) > after), key=lambda rule: str(rule.rule.scope))
    page = found[: query.limit]
    shown = Page[RuleOut](
        items=[policy.rule(rule) for rule in page],
        next_cursor=encode(_LIST, (str(page[-1].rule.scope),)) if len(found) > query.limit else None,
    )
    return Response(shown.model_dump_json(), media_type="application/json")


@router.get(
    "/{scope}",
    response_model=RuleOut,
    summary="Look at one scope's rules",
    responses=answers(200, "The scope's rules.", etag=True) | problems(404),
)
async def get_rules(services: Served, caller: Caller, scope: ScopeInPath) -> Response:
    """The rules of one user, project or type, or of everybody."""
    async with services.runtime.uow() as uow:
        stored = await change_policy.find(uow, caller, Scope.parse(scope))
    return _answer(stored)


@router.put(
    "/{scope}",
    response_model=RuleOut | PolicyVerdict,
    summary="Set one scope's rules",
    responses=answers(200, "The new rules; with `dry_run`, what they would affect.", etag=True)
    | problems(400, 403, 404, 412, 413, 415),
    openapi_extra={"parameters": [IF_MATCH], "requestBody": reads(RulesIn)["requestBody"]},
)
async def put_rules(
    request: Request,
    services: Served,
    caller: Caller,
    scope: ScopeInPath,
    dry_run: Annotated[
        bool, Query(description="Only return the jobs and bookings that would break the rules; nothing is stored.")
    ] = False,
) -> Response:
    """Administrators only. Rules that the request omits are deleted. The change applies from now on: running jobs and
    bookings stay."""
    body = await bodies.read(request, RulesIn, limit=services.settings.max_body_bytes)
    expected = expected_version(request)
    if dry_run:
        now = services.runtime.clock.now()
        found = await preview(services.runtime.uow, caller, Scope.parse(scope), body.rules(), expected, now)
        return Response(policy.preview(found).model_dump_json(), media_type="application/json")
    async with services.runtime.uow() as uow:
        stored = await change_policy.set_rules(
            uow, caller, Scope.parse(scope), body.rules(), expected, services.runtime.clock.now()
        )
    services.policy.forget()
    return _answer(stored)


@router.delete(
    "/{scope}",
    response_model=RuleOut,
    summary="Delete one scope's rules",
    responses=problems(400, 403, 404, 412),
    openapi_extra={"parameters": [IF_MATCH]},
)
async def delete_rules(request: Request, services: Served, caller: Caller, scope: ScopeInPath) -> Response:
    """Administrators only. Answers with the deleted rules."""
    expected = expected_version(request)
    async with services.runtime.uow() as uow:
        stored = await change_policy.delete(uow, caller, Scope.parse(scope), expected, services.runtime.clock.now())
    services.policy.forget()
    return Response(policy.rule(stored).model_dump_json(), media_type="application/json")


def _answer(stored: StoredRule) -> Response:
    headers = {"ETag": version_tag(stored.version)}
    return Response(policy.rule(stored).model_dump_json(), media_type="application/json", headers=headers)
