"""AWS identities: accounts, roles and users in the ARNs that STS returns."""

import re

from reservation_core.domain.errors import ProofRefusedError, SignInRefusedError
from reservation_core.domain.people.sign_in import ProvedIdentity
from reservation_core.domain.statuses import SignInMethod

_ARN = re.compile(r"arn:aws(?:-[a-z-]{1,20})?:(?P<service>iam|sts)::(?P<account>[0-9]{12}):(?P<what>[!-~]{1,1024})")


def aws_identity(account: str, arn: str) -> ProvedIdentity:
    """Attributes for rules: `account`, and `iam_user`, or `iam_role` and `session`.

    Raises SignInRefusedError for an account's root and for federated users, ProofRefusedError for a malformed answer.
    """
    parts = _ARN.fullmatch(arn)
    if parts is None or parts["account"] != account:
        raise ProofRefusedError("AWS answered with an identity that can't be read. Sign in another way.")
    match parts["service"], parts["what"].split("/"):
        case "iam", ["user", *_, name] if name:
            attributes = {"iam_user": (name,)}
        case "sts", ["assumed-role", role, session] if role and session:
            attributes = {"iam_role": (role,), "session": (session,)}
        case _:
            raise SignInRefusedError(f"{arn} is neither an IAM user nor a role. Sign in as one of these.")
    return ProvedIdentity(SignInMethod.AWS, arn, {"account": (account,), **attributes})
