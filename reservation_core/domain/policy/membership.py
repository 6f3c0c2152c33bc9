"""What a request breaks that is for a project of others."""

from collections.abc import Iterable

from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.similar_names import did_you_mean


def not_in_project(project: str, projects: Iterable[str] = (), who: str = "You are") -> RuleBreach:
    """The breach of a non-member's request for a project, whether or not it exists; `projects` are the user's own."""
    meant = did_you_mean(project, projects)
    detail = f"{who} in no project {project}.{meant} Leave the project out, or ask to be made a member."
    return RuleBreach("no_such_project", detail)
