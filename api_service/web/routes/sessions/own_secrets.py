"""The visitor's secrets, on the account's page: values go in, never out."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routes.account import own_secrets, show_account
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.people import SecretOut
from reservation_core.domain.sessions.secret_uses import is_secret_name

_REFUSALS = (403, 409, 413, 422)


async def set_secret(visit: Visit) -> Response:
    """Set a secret, or replace its value."""
    name, value = visit.form.get("secret_name") or "", visit.form.text("secret_value")
    try:
        if not is_secret_name(name):
            detail = "Name the secret with 1 to 63 letters, digits, “.”, “_” and “-”; begin with a letter or digit."
            raise RestProblemError.because(422, detail)
        if value is None:
            raise RestProblemError.because(422, f"Type the value of {name}, too.")
        await visit.rest.call(SecretOut, "PUT", f"/v1/secrets/{visit.encoded(name)}", body={"value": value})
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        return await show_account(visit, problem=problem, typed_secret=name)
    return visit.go("/account#secrets", f"The secret {name} is set: jobs that start from now on get this value.")


async def confirm_delete_secret(visit: Visit) -> Response:
    """Explain what deleting a secret would end."""
    name = str(visit.request.path_params["secret"])
    if name not in [secret.name for secret in await own_secrets(visit)]:
        raise RestProblemError.because(404, "You have no secret with this name. `gpu-dev secret list` shows yours.")
    return ask(
        visit,
        f"Delete the secret {name}?",
        ("Nobody can bring its value back. Running jobs keep it; waiting jobs that use it fail at their start.",),
        words="Delete it",
        back="/account#secrets",
    )


async def delete_secret(visit: Visit) -> Response:
    """Delete a secret."""
    deleted = await visit.rest.call(SecretOut, "DELETE", f"/v1/secrets/{visit.path('secret')}")
    return visit.go("/account#secrets", f"The secret {deleted.body.name} is deleted.")


ROUTES = (
    WebRoute("POST", "/account/secrets", set_secret),
    WebRoute("GET", "/account/secrets/{secret}/delete", confirm_delete_secret),
    WebRoute("POST", "/account/secrets/{secret}/delete", delete_secret),
)
