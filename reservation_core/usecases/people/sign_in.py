"""Sign in: exchange a proof of identity for a short-lived token.

The proof is used up in the transaction that makes the token, so two servers with the same proof make one token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.contracts.sign_in import AnyProof
from reservation_core.domain.errors import NameTakenError, ProofRefusedError, SignInRefusedError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.people.sign_in import LocalUser, ProvedIdentity, SignInRule, let_in
from reservation_core.ports.clock import Clock
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import TokenRecord, UserRecord
from reservation_core.ports.people.proofs import CheckedProof, ProofChecker
from reservation_core.usecases.people.tokens import KEPT_WHEN_OVER
from reservation_core.usecases.people.users import RESERVED_NAMES

SESSION_NAME = "browser session"
"""The name of browser sessions among their owner's tokens."""
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class SignInPolicy:
    """Rules of sign-in: users, roles, and the lifetime of tokens."""

    rules: Sequence[SignInRule]
    lasts: timedelta


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """The signed-in user, and their new token with its secret."""

    user: UserRecord
    token: TokenRecord
    expires_at: datetime
    secret: str = field(repr=False)


class SignInDesk:
    """Exchanges proofs for tokens."""

    def __init__(
        self, uow: UnitOfWorkFactory, checker: ProofChecker, policy: SignInPolicy, ids: IdSource, clock: Clock
    ) -> None:
        self._uow = uow
        self._checker = checker
        self._policy = policy
        self._ids = ids
        self._clock = clock

    async def sign_in(self, proof: AnyProof, *, session: bool = False) -> SignedInUser:
        """Check a proof, and make a token or a browser session for its user.

        Raises ProofRefusedError, SignInRefusedError, ProofUnavailableError.
        """
        checked = await self._checker.check(proof)
        entry = let_in(self._policy.rules, checked.identity)
        now = self._clock.now()
        async with self._uow() as uow:
            await _use_up(uow, checked, now)
            user = await _user(uow, entry, checked.identity, now)
            return await self._token(uow, user, checked.identity, now, session=session)

    async def _token(
        self, uow: UnitOfWork, user: UserRecord, identity: ProvedIdentity, now: datetime, *, session: bool
    ) -> SignedInUser:
        secret = self._ids.new_secret()
        expires_at = now + self._policy.lasts
        await uow.identities.forget_tokens(user.id, now - KEPT_WHEN_OVER)
        token = await uow.identities.create_token(
            self._ids.new_id("tok"),
            user.id,
            SESSION_NAME if session else f"{identity.method}: {identity.name}"[:_LONGEST_NAME],
            self._ids.digest(secret),
            expires_at,
            now,
            method=identity.method,
            session=session,
        )
        await uow.events.append(
            actor=user.name,
            kind=PeopleEventKind.SIGNED_IN,
            at=now,
            subject=token.id,
            data={"user": user.name, "method": identity.method.value, "identity": identity.name},
        )
        return SignedInUser(user, token, expires_at, secret)


async def _use_up(uow: UnitOfWork, checked: CheckedProof, now: datetime) -> None:
    if checked.once is None or checked.forget_after is None:
        return
    if not await uow.used_proofs.use(checked.once, checked.forget_after, now):
        raise ProofRefusedError("This proof was used before; a proof is valid for one sign-in. Sign a new one.")


async def _user(uow: UnitOfWork, entry: LocalUser, identity: ProvedIdentity, now: datetime) -> UserRecord:
    """The user of a sign-in rule, created if the rule says so. A sign-in never changes a user's role."""
    user = await uow.identities.user(entry.user)
    if user is None:
        if not entry.create or entry.user in RESERVED_NAMES:
            raise SignInRefusedError(
                f"{identity.name} maps to the user {entry.user}, who does not exist. Ask an administrator to add"
                " this user, or to let the sign-in rule create its users."
            )
        user = await _create_user(uow, entry, identity, now)
    if user.disabled_at is not None:
        raise SignInRefusedError(f"The user {user.name} is disabled. Ask an administrator.")
    if user.role is not entry.role:
        raise SignInRefusedError(
            f"The sign-in rule for {identity.name} gives the role {entry.role}, but the user {user.name} has another."
            " Ask an administrator to correct one of the two."
        )
    return user


async def _create_user(uow: UnitOfWork, entry: LocalUser, identity: ProvedIdentity, now: datetime) -> UserRecord:
    try:
        user = await uow.identities.create_user(entry.user, entry.role, now)
    except NameTakenError:
        # Another request has just created the same user.
        existing = await uow.identities.user(entry.user)
        if existing is None:
            raise
        return existing
    await uow.events.append(
        actor=user.name,
        kind=PeopleEventKind.USER_CREATED,
        at=now,
        subject=f"user:{user.name}",
        data={"role": user.role.value, "method": identity.method.value, "identity": identity.name},
    )
    return user
