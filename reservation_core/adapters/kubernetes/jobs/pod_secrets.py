"""Write the Secret of a job's pod, with the right to create and replace Secrets, and none to read them."""

from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ConflictError
from reservation_core.adapters.kubernetes.api_server.refusals import explained, refusal_of_creation
from reservation_core.adapters.kubernetes.api_server.retries import ONLY_METADATA, Transport
from reservation_core.adapters.kubernetes.pods.secret_objects import build_secret, secret_name
from reservation_core.domain.model import PodSpec


async def put_secret(transport: Transport, namespace: str, spec: PodSpec, owner_uid: str) -> None:
    """Create the Secret of an existing pod, or replace what has its name.

    The pod waits for it. The Secret has an owner from its first moment, so that none outlives its pod, whoever is
    killed meanwhile. Raises PodRefusedError, PodNotNowError and ClusterUnavailableError, as for a pod.
    """
    path, secret = f"/api/v1/namespaces/{namespace}/secrets", build_secret(spec, namespace, owner_uid)
    try:
        await transport.request("POST", path, body=secret, accept=ONLY_METADATA)
    except ConflictError:
        # From an earlier try, or of a pod that a restored ledger has forgotten.
        with explained("update", "secrets", namespace):
            await transport.request("PUT", f"{path}/{secret_name(spec)}", body=secret, accept=ONLY_METADATA)
    except ApiServerError as error:
        raise refusal_of_creation(error, "secrets", secret_name(spec), namespace) from error
