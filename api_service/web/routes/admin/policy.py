"""The policy: rules by scope, changed after a preview."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from api_service.problems import ProblemError
from api_service.web.confirmation import ask
from api_service.web.forms.policy_form import (
    LIFTED,
    ORDERS,
    RULES,
    TypedException,
    TypedRules,
    changed_rules,
    exceptions_of,
    exceptions_typed,
    fields_of,
    rule_label,
    rule_texts,
    typed_rules,
)
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.nodes import NodeOut
from reservation_core.contracts.policy import PolicyVerdict, RuleOut, RulesIn
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.rule_words import scope_text

_REFUSALS = (400, 403, 404, 409, 412, 422)
_OWNERS = ("everybody", "user", "project")


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored rules of a scope and their ETag; None without rules."""

    rules: RulesIn | None
    etag: str | None
    from_file: bool = False


async def rules_page(visit: Visit) -> Response:
    """Show all rules, and the choice of a scope."""
    return await _list(visit)


async def choose(visit: Visit) -> Response:
    """Lead to the rules of the chosen scope."""
    try:
        scope = str(_chosen(visit))
        await _stored(visit, scope)
    except RestProblemError as problem:
        return await _list(visit, problem)
    return visit.go(f"/admin/policy/{visit.encoded(scope)}")


async def form_page(visit: Visit) -> Response:
    """Show the rules of one scope, to be changed."""
    stored = await _stored(visit, _scope(visit))
    return _form(visit, stored.etag, fields_of(stored.rules), exceptions_of(stored.rules), from_file=stored.from_file)


async def preview(visit: Visit) -> Response:
    """Show the users that the rules would affect; nothing has changed yet."""
    typed = typed_rules(visit.form)
    if typed.wrong:
        return _again(visit, typed, 422)
    try:
        stored = await _as_it_was(visit)
        verdict = PolicyVerdict.model_validate_json(await _put(visit, typed, dry_run=True))
    except RestProblemError as problem:
        return _refused(visit, typed, problem)
    differs = changed_rules(stored.rules, verdict.rules)
    breaks = [(rule_label(code), count) for code, count in verdict.broken_rules.items()]
    return _again(visit, typed, preview=verdict, differs=differs, breaks=breaks)


async def save(visit: Visit) -> Response:
    """Store the rules, unless they changed since the form was shown."""
    typed = typed_rules(visit.form)
    if typed.wrong:
        return _again(visit, typed, 422)
    try:
        await _as_it_was(visit)
        await _put(visit, typed, dry_run=False)
    except RestProblemError as problem:
        return _refused(visit, typed, problem)
    return visit.go("/admin/policy", f"The rules for {_whom(visit)} apply from now on.")


async def confirm_drop(visit: Visit) -> Response:
    """Explain what deleting the rules would do."""
    stored = await _stored(visit, _scope(visit))
    whom = _whom(visit)
    if stored.rules is None:
        return visit.go("/admin/policy", f"There are no rules for {whom}.", warns=True)
    address = f"/admin/policy/{visit.path('scope')}"
    sentences = [
        f"Deleted: {'; '.join(f'{rule_words.words}: {rule_words.value}' for rule_words in rule_texts(stored.rules))}.",
        "They end at once; less specific rules apply where there are any. Running jobs and bookings stay.",
    ]
    if stored.from_file:
        sentences.append("The policy file has them, too: its next change brings them back unless it leaves them out.")
    return ask(
        visit,
        f"Delete the rules for {whom}?",
        sentences,
        fields={"etag": stored.etag or ""},
        words="Delete them",
        back=address,
    )


async def drop(visit: Visit) -> Response:
    """Delete all rules of a scope."""
    await visit.rest.send("DELETE", f"/v1/policy/{visit.path('scope')}", match=visit.form.get("etag"))
    return visit.go("/admin/policy", f"There are no rules for {_whom(visit)} any more.")


def _chosen(visit: Visit) -> Scope:
    owner, name, gpu_type = (visit.query(field) or None for field in ("owner", "name", "gpu_type"))
    if owner not in _OWNERS or (owner == "everybody") != (name is None):
        detail = "Rules for a user or a project need a name; rules for everybody have none."
        raise RestProblemError.because(422, detail)
    return Scope(
        user=name if owner == "user" else None, project=name if owner == "project" else None, gpu_type=gpu_type
    )


def _scope(visit: Visit) -> str:
    return str(visit.request.path_params["scope"])


def _whom(visit: Visit) -> str:
    try:
        return scope_text(Scope.parse(_scope(visit)))
    except ValueError as error:
        raise ProblemError(404, "not_found", f"There are no rules at this address: {error}.") from error


async def _stored(visit: Visit, scope: str) -> _Stored:
    try:
        answer = await visit.rest.call(RuleOut, "GET", f"/v1/policy/{visit.encoded(scope)}")
    except RestProblemError as problem:
        if problem.status == 404:
            return _Stored(None, None)
        raise
    return _Stored(answer.body.rules, answer.headers["etag"], answer.body.from_file)


async def _as_it_was(visit: Visit) -> _Stored:
    """Read the stored rules. Raises RestProblemError (412) if they changed since the form was shown."""
    stored = await _stored(visit, _scope(visit))
    if stored.etag != visit.form.get("etag"):
        detail = "These rules were changed in the meantime. Look at them again, then repeat your change."
        raise RestProblemError.because(412, detail)
    return stored


async def _put(visit: Visit, typed: TypedRules, *, dry_run: bool) -> bytes:
    answer = await visit.rest.send(
        "PUT",
        f"/v1/policy/{visit.path('scope')}",
        query={"dry_run": dry_run},
        body=typed.body,
        match=visit.form.get("etag"),
    )
    return answer.body


def _refused(visit: Visit, typed: TypedRules, problem: RestProblemError) -> Response:
    if problem.status not in _REFUSALS:
        raise problem
    return _again(visit, typed, problem.status, problem=problem)


def _again(visit: Visit, typed: TypedRules, status: int = 200, **more: Any) -> Response:
    shown, rows = visit.form.shown(), exceptions_typed(visit.form)
    return _form(visit, visit.form.get("etag"), shown, rows, status, wrong=typed.wrong, **more)


def _form(
    visit: Visit,
    etag: str | None,
    fields: Mapping[str, str],
    exceptions: list[TypedException],
    status: int = 200,
    **more: Any,
) -> Response:
    scope = _scope(visit)
    whom = _whom(visit)
    context = {"from_file": False, "wrong": {}, "problem": None, "preview": None, "differs": (), "breaks": (), **more}
    return visit.page(
        "admin/policy_form.html",
        title=f"Rules for {whom}",
        status=status,
        scope=scope,
        whom=whom,
        etag=etag,
        fields=fields,
        exceptions=exceptions,
        rules=RULES,
        orders=ORDERS if Scope.parse(scope).has_order else {},
        lifted=LIFTED,
        **context,
    )


async def _list(visit: Visit, problem: RestProblemError | None = None) -> Response:
    stored = await visit.rest.all(Page[RuleOut], "/v1/policy")
    nodes = await visit.rest.all(Page[NodeOut], "/v1/nodes")
    return visit.page(
        "admin/policy.html",
        title="Policy",
        status=200 if problem is None else problem.status,
        live="admin",
        scopes=[(rule, scope_text(Scope.parse(rule.scope)), rule_texts(rule.rules)) for rule in stored],
        owners=_OWNERS,
        gpu_types=sorted({name for node in nodes for name in node.gpu_types}),
        asked={field: visit.query(field) for field in ("owner", "name", "gpu_type")},
        problem=problem,
    )


ROUTES = (
    WebRoute("GET", "/admin/policy", rules_page, PageAccess.ADMIN),
    WebRoute("GET", "/admin/policy/choose", choose, PageAccess.ADMIN),
    WebRoute("GET", "/admin/policy/{scope}", form_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/policy/{scope}/preview", preview, PageAccess.ADMIN),
    WebRoute("POST", "/admin/policy/{scope}", save, PageAccess.ADMIN),
    WebRoute("GET", "/admin/policy/{scope}/drop", confirm_drop, PageAccess.ADMIN),
    WebRoute("POST", "/admin/policy/{scope}/drop", drop, PageAccess.ADMIN),
)
