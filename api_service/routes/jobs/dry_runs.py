"""`dry_run` of a submitted job: the verdict that it would get."""

import pydantic
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from api_service.documents import reads
from api_service.presenting import verdicts
from api_service.requests.submitted_jobs import prepared
from api_service.services import Services
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.policy.outlook import Pending, decided, dry_run
from reservation_core.usecases.policy.read_plan import JobTerms

_YES_OR_NO = pydantic.TypeAdapter(bool)

SUBMITS = reads(JobSubmit)
SUBMITS["parameters"].append(
    {
        "name": "dry_run",
        "in": "query",
        "required": False,
        "description": "Only return the verdict that the request would get; nothing is changed or stored.",
        "schema": {"type": "boolean", "default": False},
    }
)


def is_dry_run(request: Request) -> bool:
    """Whether nothing is to be stored. Raises RequestValidationError for what is neither yes nor no."""
    try:
        return _YES_OR_NO.validate_python(request.query_params.get("dry_run", False))
    except pydantic.ValidationError as error:
        raise RequestValidationError(
            [{**found, "loc": ("query", "dry_run")} for found in error.errors(include_url=False)]
        ) from error


async def say_verdict(body: JobSubmit, caller: Principal, services: Services) -> Response:
    """What would become of a job. Refusals are those of submitting it."""
    now = services.runtime.clock.now()
    new = await prepared(body, caller, services, now)
    policy = services.policy.known or await services.policy.current()

    async def read(terms: JobTerms) -> Pending:
        async with services.runtime.uow() as uow:
            return await dry_run(uow, caller, new, policy, terms, services.likely_starts, now)

    with services.dry_run_turns.take():
        outlook = await decided(read, services.job_terms)
    verdict = verdicts.job_verdict(outlook, estimates=bool(services.job_terms.estimates))
    return Response(verdict.model_dump_json(), media_type="application/json")
