"""Proofs of identity: signed here, read from a file, printed by a command, or fetched from Google's metadata server."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import TypeVar, assert_never

from msgspec import Struct

from gpu_dev.errors import NotLoggedInError, UsageError
from gpu_dev.inputs.plain_requests import plain_request
from gpu_dev.server.ways import DEFAULT_SERVICE_ACCOUNT_TOKEN, Way, WayKind
from gpu_dev.wire.sign_in import AwsProof, KubernetesProof, OidcProof
from reservation_core.domain.statuses import SignInMethod

S = TypeVar("S", bound=Struct)

_METADATA = "http://{host}/computeMetadata/v1/instance/service-accounts/default/identity"
_LARGEST = 64 * 1024
_PATIENCE_S = 120


def proof_of(way: Way, server: str) -> AwsProof | OidcProof | KubernetesProof:
    """A fresh proof for `server`. The name in the proof never comes from the server, which could name another one.

    Raises UsageError, NotLoggedInError.
    """
    match way.kind:
        case WayKind.AWS:
            from gpu_dev.server.aws_signing import signed_request

            return signed_request(way.server_id or server, way.where)
        case WayKind.OIDC_FILE:
            return _id_token(_read(way.where or ""), way.where or "")
        case WayKind.OIDC_COMMAND:
            return _id_token(_read_output(way.where or ""), "The command")
        case WayKind.GCP:
            return _id_token(_fetch_from_google(way.server_id or server), "Google's metadata server")
        case WayKind.KUBERNETES:
            path = way.where or DEFAULT_SERVICE_ACCOUNT_TOKEN
            return _checked(KubernetesProof, {"method": SignInMethod.KUBERNETES, "token": _read(path)}, path)
        case _:
            assert_never(way.kind)


def _id_token(token: str, source: str) -> OidcProof:
    return _checked(OidcProof, {"method": SignInMethod.OIDC, "id_token": token}, source)


def _checked(model: type[S], fields: dict[str, object], source: str) -> S:
    proof = plain_request(model, fields)
    if proof is None:
        # Without what is wrong with it, which would show parts of a secret.
        raise UsageError(f"{source} holds no token that can be shown: it must be one JSON web token.")
    return proof


def _read(path: str) -> str:
    try:
        with Path(path).expanduser().open(encoding="ascii") as file:
            return file.read(_LARGEST).strip()
    except OSError as error:
        raise UsageError(f"The token file {path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The token file {path} holds no token.") from error


def _read_output(command: str) -> str:
    """Run a command without a shell and read its stdout; its stderr goes to the terminal."""
    try:
        words = shlex.split(command)
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=False)
    except (OSError, ValueError, IndexError) as error:
        raise UsageError(f"The command for the ID token can't be run ({type(error).__name__}).") from error
    except subprocess.TimeoutExpired as error:
        raise NotLoggedInError(f"The command for the ID token did not end within {_PATIENCE_S} s.") from error
    if done.returncode != 0:
        raise NotLoggedInError(f"The command for the ID token ended with {done.returncode}.", next_command=command)
    return done.stdout[:_LARGEST].decode("ascii", "replace").strip()


def _fetch_from_google(audience: str) -> str:
    """The ID token of the machine's or pod's service account."""
    import httpx

    # Google's libraries read this variable, too.
    address = _METADATA.format(host=os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal")
    params = {"audience": audience, "format": "full"}
    try:
        with httpx.Client(trust_env=False, timeout=10) as http:
            answer = http.get(address, params=params, headers={"Metadata-Flavor": "Google"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotLoggedInError(
            "Google's metadata server does not answer: this is no machine or pod of Google's cloud. Elsewhere use"
            " --id-token-command.",
            next_command='gpu-dev login --oidc --id-token-command "gcloud auth print-identity-token"',
        ) from error
    if answer.status_code != httpx.codes.OK or answer.headers.get("metadata-flavor") != "Google":
        raise NotLoggedInError(f"Google's metadata server gives no ID token (status {answer.status_code}).")
    return answer.text.strip()
