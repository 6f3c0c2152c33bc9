"""The visitor's account: tokens, sessions, SSH keys, secrets, rules and notifications."""

from collections.abc import Mapping

from starlette.responses import Response

from api_service.web.calendar.turn_notices import own_targets
from api_service.web.confirmation import ask
from api_service.web.forms.policy_form import RuleText, rule_texts
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.token_form import SCOPES, latest_end, own_tokens, scope_words, token_asked
from api_service.web.token_revocation import ask_to_revoke
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.notices import NoticePreferencesOut, NoticeTargetCreated
from reservation_core.contracts.people import SecretOut, TokenCreated
from reservation_core.contracts.policy import RuleOut
from reservation_core.contracts.sessions import SshKeyOut
from reservation_core.domain.notices.kinds import KIND_MEANINGS, NoticeChannel, NoticeKind
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.rule_words import scope_text
from reservation_core.domain.time_words import rfc3339

_REFUSALS = (400, 403, 409, 412, 413, 422)
_NAMED = 5


async def account_page(visit: Visit) -> Response:
    """Show the account."""
    return await show_account(visit)


async def make_token(visit: Visit) -> Response:
    """Create a token. This page alone shows its secret."""
    try:
        asked = token_asked(visit, await latest_end(visit))
        return await show_account(visit, made=await visit.rest.post(TokenCreated, "/v1/tokens", asked))
    except RestProblemError as problem:
        return await _refused(visit, problem)


async def confirm_revoke(visit: Visit) -> Response:
    """Explain what revoking a token or a session would end."""
    return ask_to_revoke(visit, await own_tokens(visit), back="/account", fields={})


async def revoke_token(visit: Visit) -> Response:
    """Revoke a token or a session."""
    token = visit.path("token")
    await visit.rest.send("DELETE", f"/v1/tokens/{token}")
    return visit.go("/account", f"{token} is revoked.")


async def confirm_end_other_sessions(visit: Visit) -> Response:
    """Explain which browsers would be signed out."""
    others = [token for token in await own_tokens(visit) if token.session and token.id != visit.principal.token_id]
    if not others:
        raise RestProblemError.because(404, "No other browser is signed in.")
    times = [rfc3339(token.created_at) for token in others[:_NAMED]]
    if len(others) > _NAMED:
        times.append("other times")
    if len(others) == 1:
        lost = f"1 other browser is signed out at once: the one signed in at {times[0]}."
    else:
        named = f"{', '.join(times[:-1])} and {times[-1]}"
        lost = f"{len(others)} other browsers are signed out at once: those signed in at {named}."
    return ask(
        visit,
        "Sign out all other browsers?",
        (lost, "This browser and your tokens stay."),
        words="Sign them out",
        back="/account",
    )


async def end_other_sessions(visit: Visit) -> Response:
    """Sign out all browsers but this one."""
    ended = 0
    for token in await own_tokens(visit):
        if token.session and token.id != visit.principal.token_id:
            await visit.rest.send("DELETE", f"/v1/tokens/{token.id}")
            ended += 1
    return visit.go("/account", f"{ended} other {'browser is' if ended == 1 else 'browsers are'} signed out.")


async def choose_kinds(visit: Visit) -> Response:
    """Choose which events are notified, and how."""
    kinds = {kind.value: visit.form.all(kind.value) for kind in NoticeKind}
    try:
        await visit.rest.send("PUT", "/v1/notifications/preferences", body={"kinds": kinds})
    except RestProblemError as problem:
        return await _refused(visit, problem)
    nowhere = "" if await own_targets(visit) else " Nothing is sent yet: you have no notification address."
    return visit.go("/account", f"Your choice is saved.{nowhere}", warns=bool(nowhere))


async def add_target(visit: Visit) -> Response:
    """Add a notification address. This page alone shows a webhook's secret."""
    body = {"channel": visit.form.get("channel"), "address": visit.form.get("address") or ""}
    if (name := visit.form.get("name")) is not None:
        body["name"] = name
    try:
        target = await visit.rest.post(NoticeTargetCreated, "/v1/notifications/targets", body)
    except RestProblemError as problem:
        return await _refused(visit, problem)
    return await show_account(visit, target=target)


async def confirm_remove_target(visit: Visit) -> Response:
    """Explain what removing a notification address would end."""
    found = [target for target in await own_targets(visit) if target.id == visit.path("target")]
    if not found:
        raise RestProblemError.because(404, "You have no address with this id. `gpu-dev notify targets` shows yours.")
    target = found[0]
    secret = " A webhook that you add later has another secret." if target.channel is NoticeChannel.WEBHOOK else ""
    return ask(
        visit,
        f"Remove {target.name or target.address}?",
        (f"No notifications are sent to {target.address} any more.{secret}",),
        words="Remove it",
        back="/account",
    )


async def change_target(visit: Visit) -> Response:
    """Test, confirm or remove a notification address."""
    target, deed = visit.path("target"), visit.request.url.path.rpartition("/")[2]
    address = f"/v1/notifications/targets/{target}"
    try:
        if deed == "remove":
            await visit.rest.send("DELETE", address)
        elif deed == "verify":
            await visit.rest.send("POST", f"{address}/verify", body={"code": visit.form.get("code") or ""})
        else:
            await visit.rest.send("POST", f"{address}/test")
    except RestProblemError as problem:
        return await _refused(visit, problem)
    return visit.go("/account", _DONE[deed])


_DONE = {
    "test": "A test is being sent; the list shows whether it was delivered.",
    "verify": "The address is confirmed.",
    "remove": "The address is removed: nothing is sent there any more.",
}


async def _refused(visit: Visit, problem: RestProblemError) -> Response:
    if problem.status not in _REFUSALS:
        raise problem
    return await show_account(visit, problem=problem)


async def own_keys(visit: Visit) -> list[SshKeyOut]:
    """The visitor's SSH keys."""
    return await visit.rest.all(Page[SshKeyOut], "/v1/keys", {"user": visit.principal.user}, at_most=200)


async def own_secrets(visit: Visit) -> list[SecretOut]:
    """The visitor's secrets, without their values."""
    return await visit.rest.all(Page[SecretOut], "/v1/secrets", at_most=1000)


async def _rules(visit: Visit) -> list[tuple[str, list[RuleText]]]:
    """The rules that hold for the visitor, the most specific first: of whom they are, and what they say."""
    held = await visit.rest.all(Page[RuleOut], "/v1/policy", {"mine": True})
    held.sort(key=lambda rule: (rule.user is None, rule.project is None, rule.gpu_type is None, rule.scope))
    return [
        (
            "you" + (f", {rule.gpu_type}" if rule.gpu_type else "")
            if rule.user
            else scope_text(Scope.parse(rule.scope)),
            rule_texts(rule.rules),
        )
        for rule in held
    ]


async def show_account(
    visit: Visit,
    *,
    made: TokenCreated | None = None,
    target: NoticeTargetCreated | None = None,
    problem: RestProblemError | None = None,
    typed_key: Mapping[str, str] | None = None,
    typed_secret: str = "",
) -> Response:
    """The account's page. `made`, `target`: what was made just now; `typed_key`: an SSH key that was refused;
    `typed_secret`: the name of a secret that was refused."""
    preferences = await visit.rest.get(NoticePreferencesOut, "/v1/notifications/preferences")
    return visit.page(
        "account.html",
        title="Your account",
        status=200 if problem is None else problem.status,
        tokens=await own_tokens(visit),
        latest_end=await latest_end(visit),
        by_token=visit.principal.session_from is not None,
        scopes=SCOPES,
        scope_words=scope_words,
        made=made,
        keys=await own_keys(visit),
        typed_key=typed_key or {},
        secrets=await own_secrets(visit),
        typed_secret=typed_secret,
        rules=await _rules(visit),
        target=target,
        problem=problem,
        kinds=preferences.kinds,
        meanings=KIND_MEANINGS,
        channels=list(NoticeChannel),
        sends_mail=NoticeChannel.EMAIL not in preferences.unavailable,
        targets=await own_targets(visit),
    )


ROUTES = (
    WebRoute("GET", "/account", account_page),
    WebRoute("POST", "/account/tokens", make_token),
    WebRoute("GET", "/account/tokens/{token}/revoke", confirm_revoke),
    WebRoute("POST", "/account/tokens/{token}/revoke", revoke_token),
    WebRoute("GET", "/account/sessions/end", confirm_end_other_sessions),
    WebRoute("POST", "/account/sessions/end", end_other_sessions),
    WebRoute("POST", "/account/notices", choose_kinds),
    WebRoute("POST", "/account/targets", add_target),
    WebRoute("GET", "/account/targets/{target}/remove", confirm_remove_target),
    *(WebRoute("POST", f"/account/targets/{{target}}/{deed}", change_target) for deed in _DONE),
)
