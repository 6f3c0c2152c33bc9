"""Create the checkers of proofs from settings; other kinds are refused with the next step."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar, assert_never

from reservation_core.contracts.sign_in import AnyProof, AwsProof, KubernetesProof, OidcProof
from reservation_core.domain.errors import SignInRefusedError
from reservation_core.domain.people.aws_signed_requests import AwsRules
from reservation_core.domain.statuses import SignInMethod
from reservation_core.ports.people.code_flow import CodeFlow
from reservation_core.ports.people.proofs import CheckedProof
from reservation_core.runtime.client_tls import client_tls
from reservation_core.runtime.reading.sign_in_file import SignInFile, read_sign_in_file
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.people.sign_in import SignInDesk, SignInPolicy

if TYPE_CHECKING:
    from httpcore import AsyncNetworkBackend

    from reservation_core.adapters.kubernetes.api_server.retries import Transport

P_contra = TypeVar("P_contra", contravariant=True)


class _Checks(Protocol[P_contra]):
    async def check(self, proof: P_contra) -> CheckedProof: ...


class Proofs:
    """See ports.people.proofs.ProofChecker: passes a proof to the checker of its kind."""

    def __init__(
        self,
        aws: _Checks[AwsProof] | None = None,
        oidc: _Checks[OidcProof] | None = None,
        kubernetes: _Checks[KubernetesProof] | None = None,
    ) -> None:
        self._aws = aws
        self._oidc = oidc
        self._kubernetes = kubernetes

    async def check(self, proof: AnyProof) -> CheckedProof:
        """Raises ProofRefusedError, ProofUnavailableError, SignInRefusedError."""
        match proof:
            case AwsProof():
                return await _set_up(self._aws, SignInMethod.AWS).check(proof)
            case OidcProof():
                return await _set_up(self._oidc, SignInMethod.OIDC).check(proof)
            case KubernetesProof():
                return await _set_up(self._kubernetes, SignInMethod.KUBERNETES).check(proof)
            case _:
                assert_never(proof)


@dataclass(frozen=True, slots=True)
class SignInSetup:
    """The sign-in desk, the code flow of an issuer if set up, and the transport to close."""

    desk: SignInDesk
    transport: "Transport | None" = None
    code_flow: CodeFlow | None = None

    async def close(self) -> None:
        if self.transport is not None:
            await self.transport.close()


def open_sign_in(settings: ApiSettings, runtime: Runtime, network: "AsyncNetworkBackend | None" = None) -> SignInSetup:
    """Set up sign-in by the settings, without requests. `network` opens connections to AWS and issuers.

    Raises SettingsError.
    """
    auth = settings.auth
    file = SignInFile() if auth.file is None else read_sign_in_file(auth.file)
    if file.methods & {SignInMethod.AWS, SignInMethod.KUBERNETES} and not auth.server_ids:
        raise SettingsError(
            "GPU_DEV_AUTH__SERVER_IDS is not set. Set it to the addresses that people know this server by, such as"
            " https://gpus.example.org: what they sign is meant for these."
        )
    transport = _transport(settings) if SignInMethod.KUBERNETES in file.methods else None
    proofs = _proofs(auth, file, runtime, transport, network)
    desk = SignInDesk(runtime.uow, proofs, SignInPolicy(file.rules, auth.lasts), runtime.ids, runtime.clock)
    return SignInSetup(desk, transport, _code_flow(settings, file, network))


def _code_flow(settings: ApiSettings, file: SignInFile, network: "AsyncNetworkBackend | None") -> CodeFlow | None:
    web, auth = settings.web, settings.auth
    if web.oidc_issuer is None or web.oidc_client_id is None or not web.enabled:
        return None
    known = {issuer.url: issuer for issuer in file.issuers}
    if web.oidc_issuer not in known or web.oidc_client_id not in known[web.oidc_issuer].audiences:
        raise SettingsError(
            "GPU_DEV_WEB__OIDC_ISSUER must be an issuer of the sign-in file (GPU_DEV_AUTH__FILE), and"
            " GPU_DEV_WEB__OIDC_CLIENT_ID one of its audiences there: ID tokens of the pages are checked as any other."
        )
    from reservation_core.adapters.identity.code_flow import Client, IssuerCodeFlow  # noqa: PLC0415
    from reservation_core.adapters.identity.outside import Outside, OutsideRules  # noqa: PLC0415
    from reservation_core.adapters.identity.turns import TurnRules  # noqa: PLC0415

    secret = settings.web_oidc_client_secret
    client = Client(
        web.oidc_issuer,
        web.oidc_client_id,
        f"{web.public_url}/sign-in/done",
        None if secret is None else secret.get_secret_value(),
    )
    turns = TurnRules(auth.parallel, 8 * auth.parallel, auth.timeout_s)
    return IssuerCodeFlow(
        client, Outside(OutsideRules(client_tls(auth.ca_file, "GPU_DEV_AUTH__CA_FILE"), turns), network)
    )


def _proofs(
    auth: AuthSettings,
    file: SignInFile,
    runtime: Runtime,
    transport: "Transport | None",
    network: "AsyncNetworkBackend | None",
) -> Proofs:
    # Imported only if needed: most servers need none of them.
    from reservation_core.adapters.identity.outside import Outside, OutsideRules  # noqa: PLC0415
    from reservation_core.adapters.identity.turns import TurnRules  # noqa: PLC0415

    kubernetes: _Checks[KubernetesProof] | None = None
    aws: _Checks[AwsProof] | None = None
    oidc: _Checks[OidcProof] | None = None
    if not file.methods:
        return Proofs()
    tls = client_tls(auth.ca_file, "GPU_DEV_AUTH__CA_FILE")
    turns = TurnRules(auth.parallel, 8 * auth.parallel, auth.timeout_s)

    def outside() -> Outside:
        """One for every kind, so that a flood of one kind does not delay the others."""
        return Outside(OutsideRules(tls, turns), network)

    if SignInMethod.AWS in file.methods:
        from reservation_core.adapters.identity.sts import StsProofs  # noqa: PLC0415

        rules = AwsRules(frozenset(auth.server_ids), frozenset(auth.sts_hosts), timedelta(seconds=auth.aws_max_age_s))
        aws = StsProofs(rules, outside(), runtime.clock)
    if SignInMethod.OIDC in file.methods:
        from reservation_core.adapters.identity.key_sets import KeySetRules  # noqa: PLC0415
        from reservation_core.adapters.identity.oidc import OidcProofs  # noqa: PLC0415

        keys = KeySetRules(every_s=auth.keys_every_s)
        max_age = timedelta(seconds=auth.oidc_max_age_s)
        oidc = OidcProofs(file.issuers, outside(), runtime.clock, keys, max_age)
    if transport is not None:
        from reservation_core.adapters.kubernetes.other_objects.token_reviews import TokenReviews  # noqa: PLC0415

        kubernetes = TokenReviews(transport, auth.server_ids, turns)
    return Proofs(aws, oidc, kubernetes)


def _transport(settings: ApiSettings) -> "Transport":
    from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError  # noqa: PLC0415
    from reservation_core.runtime.kubernetes import open_transport  # noqa: PLC0415

    try:
        return open_transport(settings)
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error


def _set_up(checks: _Checks[P_contra] | None, method: SignInMethod) -> _Checks[P_contra]:
    if checks is None:
        raise SignInRefusedError(
            f"This server does not accept sign-in by {method}. Ask an administrator to set it up, or for a token"
            " (`gpu-dev login` stores one)."
        )
    return checks
