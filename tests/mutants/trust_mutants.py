"""Guards of trust: what a credential may do, what is written down of it, and where notices may go."""

from tests.mutants.mutant import Mutant

TOKENS = "tests/integration/api_service/test_token_scopes.py"
WEBHOOK = "tests/integration/admission_webhook/test_serving.py"
TRIGGERS = "migrations/versions/0027_token_scopes.sql"

TRUST = (
    Mutant(
        "a child outranks its maker",
        "A token has no scope that the one lacks which it is made with",
        TRIGGERS,
        "\n       OR NOT NEW.scopes <@ maker.scopes",
        "",
        (f"{TOKENS}::test_the_database_refuses_what_reaches_farther",),
    ),
    Mutant(
        "a child outlives its maker",
        "A token ends with the one that it is made with, at the latest",
        TRIGGERS,
        "NEW.expires_at > maker.expires_at OR (NEW.expires_at IS NULL AND maker.expires_at IS NOT NULL)",
        "false",
        (f"{TOKENS}::test_the_database_refuses_what_reaches_farther",),
    ),
    Mutant(
        "children stay when their maker is revoked",
        "Revoking a token revokes all that were made with it",
        TRIGGERS,
        "    UPDATE tokens SET revoked_at = NEW.revoked_at WHERE made_with = NEW.id AND revoked_at IS NULL;\n",
        "",
        (f"{TOKENS}::test_revoking_takes_all_that_were_made_with_it",),
    ),
    Mutant(
        "a token that is made meanwhile stays",
        "A token that is made while its maker is revoked is revoked too",
        TRIGGERS,
        "coalesce(NEW.made_with, NEW.session_from) FOR SHARE;",
        "coalesce(NEW.made_with, NEW.session_from);",
        (f"{TOKENS}::test_a_token_that_is_made_while_its_maker_is_revoked_is_revoked",),
    ),
    Mutant(
        "nobody asks for scopes",
        "Every request under /v1 takes the scopes that its method and address say",
        "api_service/gate.py",
        '                token_reach.require(principal, scope["method"], scope["path"])\n',
        "",
        (f"{TOKENS}::test_a_token_is_good_for_its_scopes_alone",),
    ),
    Mutant(
        "pages ask for no scopes",
        "What a page does takes the same scopes as the request that it stands for",
        "api_service/web/rest_calls.py",
        "            token_reach.require(self._principal, method, path)\n",
        "",
        ("tests/integration/api_service/web/test_sign_in.py::test_a_session_is_good_for_what_its_token_is_good_for",),
    ),
    Mutant(
        "an administrator's token is one whatever its scopes",
        "Without the scope admin an administrator's token is a user's",
        "reservation_core/ports/identities.py",
        "self.role is Role.ADMIN and TokenScope.ADMIN in self.scopes",
        "self.role is Role.ADMIN",
        (f"{TOKENS}::test_an_administrators_token_without_admin_is_a_users",),
    ),
    Mutant(
        "a session is a bearer token",
        "What a browser keeps in its cookie is good for the pages alone",
        "api_service/auth.py",
        "if principal is None or _is_over(principal, now) or principal.session is not session:",
        "if principal is None or _is_over(principal, now):",
        ("tests/integration/api_service/test_access.py::test_matrix",),
    ),
    Mutant(
        "requests leave no line",
        "Every request is in the access log, also one that was refused",
        "api_service/gate.py",
        "        self._services.access_log.note(scope, template, status, seconds)\n",
        "",
        ("tests/integration/api_service/test_access_log.py::test_every_request_leaves_a_line",),
    ),
    Mutant(
        "notices reach a cloud's metadata",
        "Notices never go where clouds give out credentials, whatever is listed",
        "reservation_core/domain/egress.py",
        "    if found in _METADATA:",
        "    if False:",
        ("tests/unit/reservation_core/domain/test_egress.py",),
    ),
    Mutant(
        "a refused target is told apart",
        "What can't and what may not be reached are one answer",
        "reservation_core/adapters/notices/guarded_network.py",
        'raise httpcore.ConnectError("not let out")',
        "raise RuntimeError(why)",
        ("tests/integration/reservation_core/adapters/notices/test_webhooks.py",),
    ),
    Mutant(
        "the webhook answers strangers",
        "With --client-ca the webhook answers about pods those alone who show a certificate",
        "admission_webhook/app.py",
        'if clients_are_known and "tls" not in request.scope.get("extensions", {}):',
        "if False:",
        (f"{WEBHOOK}::test_with_an_authority_for_clients_nobody_else_learns_anything_about_a_pod",),
    ),
)
