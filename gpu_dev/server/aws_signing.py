"""A request for AWS's GetCallerIdentity, signed here and sent by the server: it shows who we are, and is good for
nothing else. Keys and session tokens are found as AWS's own programs find them, and stay here.
"""

from concurrent.futures import TimeoutError as TookTooLongError
from io import BytesIO
from secrets import token_hex

from gpu_dev.errors import NotLoggedInError, UsageError
from gpu_dev.wire.sign_in import AwsProof
from reservation_core.domain.people.aws_signed_requests import BODY, NONCE_HEADER, SERVER_ID_HEADER
from reservation_core.domain.statuses import SignInMethod

GLOBAL_HOST = "sts.amazonaws.com"
_GLOBAL_REGION = "us-east-1"
_PATIENCE_S = 30


def signed_request(server_id: str, region: str | None) -> AwsProof:
    """Sign for one server, at AWS's global endpoint or a region's.

    Raises UsageError where the library is missing, NotLoggedInError where no credentials are found.
    """
    try:
        # An optional dependency: most users need no AWS.
        from awscrt import auth, http
        from awscrt.exceptions import AwsCrtError
    except ImportError as error:
        raise UsageError(
            "Signing for AWS needs the library awscrt.", next_command="pip install 'gpu-dev-server[aws]'"
        ) from error
    suffix = ".com.cn" if region is not None and region.startswith("cn-") else ".com"
    host = GLOBAL_HOST if region is None else f"sts.{region}.amazonaws{suffix}"
    given = [
        ("Host", host),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Content-Length", str(len(BODY))),
        (SERVER_ID_HEADER, server_id),
        (NONCE_HEADER, token_hex(16)),
    ]
    request = http.HttpRequest("POST", "/", http.HttpHeaders(given), BytesIO(BODY.encode()))
    config = auth.AwsSigningConfig(
        algorithm=auth.AwsSigningAlgorithm.V4,
        signature_type=auth.AwsSignatureType.HTTP_REQUEST_HEADERS,
        credentials_provider=auth.AwsCredentialsProvider.new_default_chain(),
        region=region or _GLOBAL_REGION,
        service="sts",
    )
    try:
        signed = auth.aws_sign_request(request, config).result(_PATIENCE_S)
    except (AwsCrtError, TookTooLongError) as error:
        raise NotLoggedInError(
            "No AWS credentials were found here. Log in to AWS first, or set AWS_PROFILE.",
            next_command="aws sts get-caller-identity",
        ) from error
    return AwsProof(
        method=SignInMethod.AWS.value, http_method="POST", url=f"https://{host}/", headers=dict(iter(signed.headers))
    )
