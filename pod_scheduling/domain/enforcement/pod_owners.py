"""The owner of a pod: said by the requester, or by administrators for the namespace; never by the pod.

A person's requests carry their name as the API server has authenticated it. Pods of Deployments, StatefulSets and Jobs
are asked for by controllers, which act for whoever the namespace belongs to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reservation_core.domain.pods.reviews import Requester

_SYSTEM = "system:"


@dataclass(frozen=True, slots=True)
class OwnerRules:
    """Rules that map requesters to users. `users` maps whole names of requesters, `prefixes` are taken off before a
    name is a user's.

    `namespaces` maps namespaces to the users for whom controllers make pods there.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    namespaces: Mapping[str, str] = field(default_factory=dict)


def owner_of(requester: Requester, namespace: str, rules: OwnerRules) -> str | None:
    """The user whose the pod is; None where nobody has said.

    Without `prefixes`, a person's name is the user's name; with them, only names that have one of them are people's.
    """
    name = requester.username
    if name in rules.users:
        return rules.users[name]
    if name and not name.startswith(_SYSTEM):
        if not rules.prefixes:
            return name
        for prefix in rules.prefixes:
            if name.startswith(prefix) and len(name) > len(prefix):
                return name.removeprefix(prefix)
        return None
    return rules.namespaces.get(namespace)
