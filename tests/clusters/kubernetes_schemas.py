"""Whether Kubernetes takes an object, by the schemas of kubernetes_validate, each of which is read once.

The library reads megabytes anew for every object, and sorts the versions that it knows twice; the tests have thousands.
"""

from functools import cache
from typing import Any

from kubernetes_validate import utils

utils.schema_contents = cache(utils.schema_contents)
utils.all_versions = cache(utils.all_versions)


def validate(document: dict[str, Any], version: str) -> None:
    """Raises kubernetes_validate.ValidationError where `version` (`1.36`) does not know the object as it is."""
    utils.validate(document, version, strict=True)
