"""Requests to AWS, signed by a test, as proofs of who somebody is."""

import os
from typing import Any
from unittest.mock import patch

from msgspec import to_builtins

from gpu_dev.server.aws_signing import signed_request
from tests.people.sign_in_world import ACCOUNT, SERVER, STS, SignInWorld

ADA = f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-users/ada"


REFUSED = "urn:gpu-dev:problem:proof_refused"


def signed(
    world: SignInWorld, *, arn: str = ADA, key: str = "AKIAEXAMPLEOFADA", server: str = SERVER
) -> dict[str, Any]:
    """What `gpu-dev login --aws` sends for somebody."""
    with patch.dict(os.environ, world.sts.person(key, arn)):
        proof: dict[str, Any] = to_builtins(signed_request(server, None))
    return proof


def presigned(world: SignInWorld, *, signed_headers: bool = True) -> dict[str, Any]:
    """The other form: a GET with the signature in its address."""
    from awscrt import auth, http

    with patch.dict(os.environ, world.sts.person("AKIAEXAMPLEOFADA", ADA)):
        request = http.HttpRequest(
            "GET", "/?Action=GetCallerIdentity&Version=2011-06-15", http.HttpHeaders([("Host", STS)])
        )
        if signed_headers:
            request.headers.add("X-GpuDev-Server-Id", SERVER)
        config = auth.AwsSigningConfig(
            algorithm=auth.AwsSigningAlgorithm.V4,
            signature_type=auth.AwsSignatureType.HTTP_REQUEST_QUERY_PARAMS,
            credentials_provider=auth.AwsCredentialsProvider.new_environment(),
            region="us-east-1",
            service="sts",
            expiration_in_seconds=60,
        )
        done = auth.aws_sign_request(request, config).result(30)
    url = f"https://{STS}{done.path}"
    return {"method": "aws", "http_method": "GET", "url": url, "headers": {"X-GpuDev-Server-Id": SERVER}}
