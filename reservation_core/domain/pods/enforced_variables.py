"""Variables that a container must have, whatever its environment says.

They come first in the environment, so that others may refer to them. The change is idempotent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reservation_core.domain.pods.pod_changes import Path, PodChanges
from reservation_core.domain.pods.pod_containers import RefusedPodError, container_named, shown
from reservation_core.domain.pods.reviews import members


@dataclass(frozen=True, slots=True)
class WantedVariable:
    """A variable with a value, or with that of a field of the pod (`field`: its path, as in a fieldRef).

    `instead_of`: an earlier value of ours, which is replaced without a warning.
    """

    name: str
    value: str = ""
    field: str | None = None
    instead_of: str | None = None

    @property
    def as_json(self) -> dict[str, Any]:
        if self.field is None:
            return {"name": self.name, "value": self.value}
        return {"name": self.name, "valueFrom": {"fieldRef": {"fieldPath": self.field}}}

    def is_(self, variable: Mapping[str, Any]) -> bool:
        """Whether the variable has this value. The API server adds an apiVersion to a fieldRef."""
        source = variable.get("valueFrom")
        if self.field is None:
            return source is None and (variable.get("value") or "") == self.value
        return members(members(source).get("fieldRef")).get("fieldPath") == self.field

    def __str__(self) -> str:
        return repr(self.value if self.field is None else self.field)


@dataclass(frozen=True, slots=True)
class VariableOwner:
    """The feature that sets variables, for messages: its `name` (`the map`), and a `remedy` besides removing them.

    `override`: another value is overwritten with a warning, not refused.
    """

    name: str
    remedy: str
    override: bool = False


def set_env(
    changes: PodChanges, path: Path, container: Mapping[str, Any], wanted: Sequence[WantedVariable], by: VariableOwner
) -> list[str]:
    """Set a container's variables; returns warnings about overwritten values. Raises RefusedPodError."""
    env = container.get("env")
    if env is not None and not (isinstance(env, list) and all(isinstance(variable, Mapping) for variable in env)):
        raise RefusedPodError(f"the env of {container_named(path, container)} is not a list of variables")
    if not env:
        changes.add((*path, "env"), [variable.as_json for variable in wanted])
        return []
    warnings: list[str] = []
    by_name = {variable.name: variable for variable in wanted}
    for position, variable in enumerate(env):
        required = by_name.get(str(variable.get("name")))
        if required is None or required.is_(variable):
            continue
        where = f"{required.name} of {container_named(path, container)}"
        if variable.get("valueFrom") is not None:
            warnings.append(f"{where} had valueFrom; it is now {required}, as {by.name} says")
        elif required.instead_of == (variable.get("value") or ""):
            pass
        elif by.override:
            warnings.append(f"{where} was {shown(variable.get('value'))}; it is now {required}, as {by.name} says")
        else:
            raise RefusedPodError(
                f"{where} is {shown(variable.get('value'))}, and {by.name} says {required}. Leave the variable"
                f" out, or {by.remedy}."
            )
        changes.replace((*path, "env", position), required.as_json)
    present = {str(variable.get("name")) for variable in env}
    for missing in reversed([variable for variable in wanted if variable.name not in present]):
        changes.add((*path, "env", 0), missing.as_json)
    return warnings
