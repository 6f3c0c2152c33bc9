"""Quotas by GPU model and pool of nodes: what an administrator writes, by namespace.

`{"team-a": {"quota": {"H100": 8}, "pool": ["public"]}}`. A namespace that is not listed is not limited. Of one that has
a `quota`, a model that is not in it is denied. Without `quota` its models are not limited, without `pool` or with an
empty one it may use all pools; a node without the label of pools is in the pool "".
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pod_scheduling.domain.placement.tasks import WHOLE

LONGEST_TEXT = 1024 * 1024
"""Characters: a ConfigMap holds one MiB."""

MOST_NAMESPACES = 20_000
MOST_MODELS = 200
MOST_POOLS = 200
MOST_CARDS = 1_000_000

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_SHOWN = 80


class BadQuotasError(ValueError):
    """The quotas cannot be used; the text says where, and what is expected there."""


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """What one namespace may use: cards in thousandths by the word for the model; None: any. No pools: all of them."""

    models: Mapping[str, int] | None = None
    pools: frozenset[str] = frozenset()

    def word_for(self, model: str, gpu_type: str) -> str | None:
        """The quota's own word for a node's model: its label's very value, else that in other letter cases, else its
        normalised type.

        None where the quota does not list it. Without a quota by models the label's value is as good a word as any.
        """
        if self.models is None or model in self.models:
            return model
        for wanted in (model.lower(), gpu_type):
            found = next((word for word in self.models if word.lower() == wanted), None)
            if found is not None:
                return found
        return None


@dataclass(frozen=True, slots=True)
class ModelQuotas:
    """The quotas of all namespaces."""

    namespaces: Mapping[str, NamespaceQuota] = field(default_factory=dict)

    def of(self, namespace: str) -> NamespaceQuota | None:
        """The quota of a namespace; None: no limit."""
        return self.namespaces.get(namespace)


NO_QUOTAS = ModelQuotas()


def loosened(before: ModelQuotas, after: ModelQuotas) -> frozenset[str]:
    """Namespaces in which the new quotas allow more than the old ones."""
    return frozenset(name for name, quota in before.namespaces.items() if _is_looser(after.of(name), quota))


def _is_looser(now: NamespaceQuota | None, before: NamespaceQuota) -> bool:
    if now is None:
        return True
    if before.pools and not (now.pools and now.pools <= before.pools):
        return True
    if before.models is None:
        return False
    return now.models is None or any(most > before.models.get(word, 0) for word, most in now.models.items())


def read_quotas(text: str) -> ModelQuotas:
    """Parse quotas. Raises BadQuotasError, which names the namespace and the field."""
    if len(text) > LONGEST_TEXT:
        raise BadQuotasError(f"it is longer than {LONGEST_TEXT} characters")
    try:
        said = json.loads(text, object_pairs_hook=_no_name_twice)
    except BadQuotasError:
        raise
    except (ValueError, RecursionError) as problem:
        raise BadQuotasError(f"it is not JSON: {problem}") from problem
    if not isinstance(said, dict):
        raise BadQuotasError('it must be an object of namespaces: {"team-a": {"quota": {"H100": 8}, "pool": []}}')
    if len(said) > MOST_NAMESPACES:
        raise BadQuotasError(f"it lists {len(said)} namespaces; {MOST_NAMESPACES} are the most")
    return ModelQuotas({name: _namespace(name, value) for name, value in said.items()})


def _namespace(name: str, said: object) -> NamespaceQuota:
    where = f"namespace {_shown(name)}"
    if not _NAMESPACE.fullmatch(name):
        raise BadQuotasError(f"{where}: this can't be a namespace's name")
    if not isinstance(said, dict):
        raise BadQuotasError(f'{where}: it must be an object with "quota" and "pool"')
    unknown = [key for key in said if key not in ("quota", "pool")]
    if unknown:
        raise BadQuotasError(f'{where}: {_shown(unknown[0])} is not known here; there are "quota" and "pool"')
    models = _models(f"{where}, quota", said["quota"]) if "quota" in said else None
    return NamespaceQuota(models, _pools(f"{where}, pool", said.get("pool")))


def _models(where: str, said: object) -> Mapping[str, int]:
    if not isinstance(said, dict):
        raise BadQuotasError(f'{where}: it must be an object of models and numbers of GPUs, like {{"H100": 8}}')
    if len(said) > MOST_MODELS:
        raise BadQuotasError(f"{where}: it lists {len(said)} models; {MOST_MODELS} are the most")
    found: dict[str, int] = {}
    by_word: dict[str, str] = {}
    for model, cards in said.items():
        if not model or not _VALUE.fullmatch(model):
            raise BadQuotasError(f"{where}: {_shown(model)} is no value that a node's label can have")
        if isinstance(cards, bool) or not isinstance(cards, int) or not 0 <= cards <= MOST_CARDS:
            raise BadQuotasError(f"{where}, {model}: it must be a whole number from 0 to {MOST_CARDS}")
        other = by_word.setdefault(model.lower(), model)
        if other != model:
            raise BadQuotasError(f"{where}: {other} and {model} are the same model; leave one")
        found[model] = cards * WHOLE
    return found


def _pools(where: str, said: object) -> frozenset[str]:
    if said is None:
        return frozenset()
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        raise BadQuotasError(f'{where}: it must be a list of names, like ["public"]')
    if len(said) > MOST_POOLS:
        raise BadQuotasError(f"{where}: it lists {len(said)} pools; {MOST_POOLS} are the most")
    for name in said:
        if not _VALUE.fullmatch(name):
            raise BadQuotasError(f"{where}: {_shown(name)} is no value that a node's label can have")
    return frozenset(said)


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadQuotasError(f"{_shown(name)} stands there twice; leave one")
        found[name] = value
    return found


def _shown(text: object) -> str:
    shown = str(text)
    return json.dumps(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…")
