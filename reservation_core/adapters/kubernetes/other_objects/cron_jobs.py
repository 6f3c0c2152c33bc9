"""When CronJobs last succeeded, by their status."""

from collections.abc import Iterable
from datetime import datetime

from reservation_core.adapters.kubernetes.api_server.errors import ObjectNotFoundError
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping, read_time
from reservation_core.adapters.kubernetes.api_server.retries import Transport


async def last_successes(transport: Transport, namespace: str, names: Iterable[str]) -> dict[str, datetime]:
    """The last success by name, the creation time before the first success; missing CronJobs are left out.

    Raises ApiServerError and ClusterUnavailableError.
    """
    successes = {}
    for name in names:
        try:
            job = await transport.request("GET", f"/apis/batch/v1/namespaces/{namespace}/cronjobs/{name}")
        except ObjectNotFoundError:
            continue
        succeeded = read_time(as_mapping(job.get("status")).get("lastSuccessfulTime"))
        at = succeeded or read_time(as_mapping(job.get("metadata")).get("creationTimestamp"))
        if at is not None:
            successes[name] = at
    return successes
