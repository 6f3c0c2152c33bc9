"""Address and credentials of the API server: from a kubeconfig or from the pod's service account.

The official client reads the files, runs exec plugins and refreshes tokens; this module decides when. Credentials are
read again every minute, as tokens and certificates rotate, and at once when the server rejects them.
"""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from reservation_core.ports.cluster import ClusterUnavailableError

_PLUGIN_PATIENCE_S = 60.0


class KubeconfigError(Exception):
    """The settings lead to no API server; the text says what to change."""


@dataclass(frozen=True, slots=True)
class ServiceAccountFiles:
    """Paths of the pod's own credentials."""

    token: Path = Path(SERVICE_TOKEN_FILENAME)
    certificate: Path = Path(SERVICE_CERT_FILENAME)


@dataclass(frozen=True, slots=True, repr=False)
class ClusterAccess:
    """The client's configuration; connections must be opened anew when `fingerprint` (all but the token) changes."""

    configuration: Any
    fingerprint: str


class Credentials:
    """The credentials of one API server; `load` returns the current client configuration."""

    def __init__(
        self,
        kubeconfig: Path | None,
        context: str | None,
        environment: Mapping[str, str],
        service_account: ServiceAccountFiles | None = None,
        *,
        server: str | None = None,
    ) -> None:
        """Choose the given kubeconfig, else this pod's service account, else the user's kubeconfig.

        `server` overrides their address. Without any of them it is asked anonymously, as behind `kubectl proxy`.
        Raises KubeconfigError for a file that is missing, can't be read, or lacks what the context names.
        """
        self._context = context
        self._server = server
        self._environment = environment
        self._files = service_account or ServiceAccountFiles()
        self._loader: Any = None
        self._known: ClusterAccess | None = None
        self._anonymous = False
        self._paths: str | None
        if kubeconfig is not None:
            self._paths = str(kubeconfig)
        elif environment.get(SERVICE_HOST_ENV_NAME) and self._files.token.is_file():
            self._paths = None
        else:
            usual = Path.home() / ".kube" / "config"
            self._paths = environment.get("KUBECONFIG") or str(usual)
            self._anonymous = server is not None and self._paths == str(usual) and not os.path.lexists(usual)
        if self._paths is not None and not self._anonymous:
            self._loader = self._read_kubeconfig(self._paths)

    async def load(self, *, afresh: bool = False) -> ClusterAccess:
        """Read address, certificates and token. `afresh` ignores everything read before.

        Raises ClusterUnavailableError when the files can't be read now or a plugin gives nothing.
        """
        if self._known is not None and not afresh and _asks_once(self._loader):
            return self._known
        configuration = Configuration()
        try:
            if self._paths is None:
                self._load_service_account(configuration)
            elif not self._anonymous:
                await self._load_kubeconfig(configuration, self._paths, afresh)
            if self._server is not None:
                configuration.host = self._server.rstrip("/")
            self._known = ClusterAccess(configuration, _fingerprint(configuration))
        except (KubeconfigError, ConfigException, OSError, ValueError, TypeError, KeyError, TimeoutError) as problem:
            # The exception's text is left out: it may quote a plugin's output.
            raise ClusterUnavailableError(
                f"The credentials for the API server could not be read from {self.origin}"
                f" ({type(problem).__name__}). Check with `kubectl get pods`, and try again."
            ) from None
        return self._known

    @property
    def origin(self) -> str:
        """The source of the credentials, as error messages name it."""
        if self._anonymous:
            return "the settings, which give no kubeconfig"
        return "this pod's service account" if self._paths is None else self._paths

    def _load_service_account(self, configuration: Any) -> None:
        loader = InClusterConfigLoader(
            token_filename=str(self._files.token),
            cert_filename=str(self._files.certificate),
            try_refresh_token=False,
            environ=self._environment,
        )
        loader.load_and_set(configuration)
        configuration.api_key["BearerToken"] = configuration.api_key["BearerToken"].strip()

    async def _load_kubeconfig(self, configuration: Any, paths: str, afresh: bool) -> None:
        if afresh or self._loader is None:
            self._loader = self._read_kubeconfig(paths)
        async with asyncio.timeout(_PLUGIN_PATIENCE_S):
            await self._loader.load_and_set(configuration)
        token = configuration.api_key.get("BearerToken")
        if token is not None:
            configuration.api_key["BearerToken"] = token.strip()  # token files often end with a newline
        elif _has_plugin(self._loader) and not configuration.cert_file:
            raise ConfigException("The exec plugin gave no credentials.")

    def _read_kubeconfig(self, paths: str) -> Any:
        try:
            merged = KubeConfigMerger(paths)
            if merged.config is None:
                raise KubeconfigError(
                    f"There is no kubeconfig at {paths}. Set GPU_DEV_KUBERNETES__KUBECONFIG to one, or run inside the"
                    " cluster with a service account."
                )
            return KubeConfigLoader(config_dict=merged.config, config_base_path=None, active_context=self._context)
        except (OSError, UnicodeDecodeError) as problem:
            raise KubeconfigError(
                f"The kubeconfig {paths} could not be read: {type(problem).__name__}. Check its path and permissions"
                " (GPU_DEV_KUBERNETES__KUBECONFIG)."
            ) from problem
        except ConfigException as problem:
            raise KubeconfigError(
                f"The kubeconfig {paths} does not say where to go: {problem}. Set GPU_DEV_KUBERNETES__CONTEXT to one of"
                " the contexts that `kubectl config get-contexts` shows, or correct the file."
            ) from problem
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
            # The parser's text is left out: it quotes the file, which holds secrets.
            raise KubeconfigError(
                f"The kubeconfig {paths} is not one. Point GPU_DEV_KUBERNETES__KUBECONFIG at a file that"
                " `kubectl --kubeconfig` accepts."
            ) from None


def _fingerprint(configuration: Any) -> str:
    digest = hashlib.sha256()
    for name in ("host", "verify_ssl", "tls_server_name", "proxy"):
        digest.update(f"{name}={getattr(configuration, name)}\n".encode())
    for name in ("ssl_ca_cert", "cert_file", "key_file"):
        path = getattr(configuration, name)
        digest.update(name.encode() + b"=" + (Path(path).read_bytes() if path else b"") + b"\n")
    return digest.hexdigest()


def _has_plugin(loader: Any) -> bool:
    user = None if loader is None else loader._user  # noqa: SLF001 -- the client has no public accessor
    return user is not None and "exec" in user


def _asks_once(loader: Any) -> bool:
    """Whether an exec plugin gives no expiry: it then runs again only after its credentials were rejected."""
    return _has_plugin(loader) and not hasattr(loader, "exec_plugin_expiry")
