"""The policy over REST: rules by scope, projects, explanations of requests, and usage."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from gpu_dev.calls.calls import Calls, given
from gpu_dev.server.exchange import read_answer
from gpu_dev.wire.base import Page
from gpu_dev.wire.policy import (
    ExplainRequest,
    Explanation,
    PolicyVerdict,
    ProjectCreate,
    ProjectOut,
    RuleOut,
    UsageOut,
    UsageSeriesOut,
)
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.time_words import rfc3339


class PolicyCalls(Calls):
    """Rules, projects and usage."""

    def explain(self, request: ExplainRequest) -> Explanation:
        """Every rule that a request would break."""
        return self._post(Explanation, "/v1/policy/explain", request)

    def rules(self) -> Iterator[RuleOut]:
        """The rules that apply to you; for administrators all."""
        return self._items(Page[RuleOut], "/v1/policy")

    def rule(self, scope: str) -> RuleOut:
        """The rules of a scope."""
        return self._get(RuleOut, _scope_path(scope))

    def fields_with_etag(self, scope: str) -> tuple[dict[str, Any], str | None]:
        """The rules of a scope as the server sent them, and the ETag to give when they are changed.

        A newer server may have rules that this client doesn't know, and that a change must keep.
        """
        response = self._exchange.send("GET", _scope_path(scope))
        read_answer(RuleOut, response.content)
        rules = msgspec.json.decode(response.content)["rules"]
        return {name: value for name, value in rules.items() if value is not None}, response.headers.get("etag")

    def put_rules(self, scope: str, fields: Mapping[str, Any], *, if_match: str | None = None) -> RuleOut:
        """Replace the rules of a scope (administrators only)."""
        return self._change("PUT", RuleOut, _scope_path(scope), fields, if_match=if_match)

    def would_put_rules(self, scope: str, fields: Mapping[str, Any], *, if_match: str | None = None) -> PolicyVerdict:
        """Preview which users `put_rules` would affect; nothing is stored (administrators only)."""
        return self._change("PUT", PolicyVerdict, _scope_path(scope), fields, if_match=if_match, dry_run="true")

    def delete_rules(self, scope: str) -> RuleOut:
        """Delete all rules of a scope (administrators only)."""
        return self._change("DELETE", RuleOut, _scope_path(scope))

    def projects(self) -> Iterator[ProjectOut]:
        """Your projects; for administrators all."""
        return self._items(Page[ProjectOut], "/v1/projects")

    def project(self, name: str) -> ProjectOut:
        """One of them."""
        return self._get(ProjectOut, _project_path(name))

    def create_project(self, request: ProjectCreate) -> ProjectOut:
        """Create a project (administrators only)."""
        return self._post(ProjectOut, "/v1/projects", request)

    def end_project(self, name: str) -> ProjectOut:
        """End a project: nothing new is booked for it (administrators only)."""
        return self._change("DELETE", ProjectOut, _project_path(name))

    def add_member(self, project: str, user: str) -> ProjectOut:
        """Add a user to a project (administrators only)."""
        return self._change("PUT", ProjectOut, f"{_project_path(project)}/members/{quote(user, safe='')}")

    def remove_member(self, project: str, user: str) -> ProjectOut:
        """Remove a user from a project (administrators only)."""
        return self._change("DELETE", ProjectOut, f"{_project_path(project)}/members/{quote(user, safe='')}")

    def usage(self, by: UsageBy, *, start: datetime | None = None, end: datetime | None = None) -> UsageOut:
        """GPU-hours held, used, idle and wasted; every line."""
        params = _usage_params(by, start, end) | {"limit": 500}
        whole: UsageOut | None = None
        while True:
            page = self._get(UsageOut, "/v1/usage", params)
            if whole is None:
                whole = page
            else:
                whole.items.extend(page.items)
            if page.next_cursor is None:
                whole.next_cursor = None
                return whole
            # Without `to`, each page would end at the time of its request.
            params |= {"cursor": page.next_cursor, "from": rfc3339(page.start), "to": rfc3339(page.end)}

    def usage_series(
        self, by: UsageBy, step: timedelta, *, start: datetime | None = None, end: datetime | None = None
    ) -> UsageSeriesOut:
        """GPU-hours held, used and wasted in each step of a period; every line."""
        params = _usage_params(by, start, end) | {"limit": 500, "step": int(step.total_seconds())}
        whole: UsageSeriesOut | None = None
        while True:
            page = self._get(UsageSeriesOut, "/v1/usage", params)
            if whole is None:
                whole = page
            else:
                whole.items.extend(page.items)
            if page.next_cursor is None:
                whole.next_cursor = None
                return whole
            params |= {"cursor": page.next_cursor, "from": rfc3339(page.start), "to": rfc3339(page.end)}

    def usage_csv(self, by: UsageBy, *, start: datetime | None = None, end: datetime | None = None) -> str:
        """The usage as the server's CSV."""
        params = _usage_params(by, start, end) | {"format": "csv"}
        return self._exchange.send("GET", "/v1/usage", params=params).text


def _usage_params(by: UsageBy, start: datetime | None, end: datetime | None) -> dict[str, object]:
    return given(
        by=by.value,
        from_=None if start is None else rfc3339(start),
        to=None if end is None else rfc3339(end),
    )


def _scope_path(scope: str) -> str:
    return f"/v1/policy/{quote(scope, safe='')}"


def _project_path(name: str) -> str:
    return f"/v1/projects/{quote(name, safe='')}"
