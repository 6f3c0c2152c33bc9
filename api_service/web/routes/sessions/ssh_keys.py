"""The visitor's SSH keys, on the account's page."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routes.account import own_keys, show_account
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.sessions import SshKeyOut

_REFUSALS = (403, 409, 413, 422)


async def add_key(visit: Visit) -> Response:
    """Add a public key."""
    body = {"public_key": visit.form.get("public_key") or ""}
    if (name := visit.form.get("key_name")) is not None:
        body["name"] = name
    try:
        key = await visit.rest.post(SshKeyOut, "/v1/keys", body)
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        shown = {} if "PRIVATE KEY" in body["public_key"] else body
        return await show_account(visit, problem=problem, typed_key=shown)
    return visit.go("/account#keys", f"You can enter your jobs with the key {key.name or key.fingerprint} now.")


async def confirm_remove_key(visit: Visit) -> Response:
    """Explain what removing a key would end."""
    key = next((key for key in await own_keys(visit) if key.id == visit.path("key")), None)
    if key is None:
        raise RestProblemError.because(404, "You have no SSH key with this id. `gpu-dev keys list` shows yours.")
    return ask(
        visit,
        f"Remove the SSH key {key.name or key.id}?",
        (f"You can't enter jobs with {key.fingerprint} any more, and connections that it opened end within seconds.",),
        words="Remove it",
        back="/account",
    )


async def remove_key(visit: Visit) -> Response:
    """Remove a key."""
    key = await visit.rest.call(SshKeyOut, "DELETE", f"/v1/keys/{visit.path('key')}")
    return visit.go("/account#keys", f"The key {key.body.name or key.body.fingerprint} is removed.")


ROUTES = (
    WebRoute("POST", "/account/keys", add_key),
    WebRoute("GET", "/account/keys/{key}/remove", confirm_remove_key),
    WebRoute("POST", "/account/keys/{key}/remove", remove_key),
)
