"""Guards of trust: what a credential may do, what is written down of it, and where notices may go."""

from tests.mutants.mutant import Mutant

TOKENS = "tests/integration/api_service/people/test_token_scopes.py"
WEBHOOK = "tests/integration/admission_webhook/test_serving.py"
TRIGGERS = "migrations/versions/002x/0027_token_scopes.sql"
BOUNDED_TRIGGERS = "migrations/versions/003x/0032_bounded_tokens.sql"
FEED = "tests/integration/api_service/bookings/test_calendar_feed.py"
CHAIN = "tests/integration/reservation_core/adapters/postgres/history/test_audit_chain.py"
CHAINING = "reservation_core/usecases/history/audit_chain.py"
CHAIN_TABLES = "migrations/versions/002x/0029_audit_chain.sql"
LOCAL_SESSIONS = "tests/integration/reservation_core/adapters/local/sessions/"
BUDGETS = "tests/integration/api_service/people/test_token_budgets.py"
SPENDING = "tests/integration/reservation_core/usecases/test_spend_budgets.py"
BUDGET_SQL = "reservation_core/adapters/postgres/people/token_budgets.sql"
BUDGET_TRIGGERS = "migrations/versions/003x/0030_token_budgets.sql"

OWN_CARDS = "tests/unit/reservation_core/domain/pods/test_cards_in_containers.py"
CARDS = "reservation_core/domain/pods/cards_in_containers.py"

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
        BOUNDED_TRIGGERS,
        "WHERE made_with = NEW.id AND revoked_at IS NULL",
        "WHERE false",
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
        "a calendar address outlives its token",
        "A calendar address works as long as the token that it was made with",
        "reservation_core/adapters/postgres/bookings/bookings.sql",
        "AND t.revoked_at IS NULL AND coalesce(t.expires_at, 'infinity') > CAST(:now AS timestamptz);",
        "AND CAST(:now AS timestamptz) IS NOT NULL;",
        (f"{FEED}::test_the_address_ends_with_the_token_that_it_was_made_with",),
    ),
    Mutant(
        "a calendar address stays when all tokens are revoked",
        "Revoking all tokens of a user removes the calendar address",
        "reservation_core/usecases/people/tokens.py",
        "if await uow.calendar_feeds.remove(user_id):",
        "if not user_id:",
        (f"{FEED}::test_revoking_all_tokens_ends_the_address_whatever_made_it",),
    ),
    Mutant(
        "two requests have the last hour",
        "Charging a budget keeps others from charging it until the transaction ends",
        BUDGET_SQL,
        "ORDER BY l.generation FOR NO KEY UPDATE OF b;",
        "ORDER BY l.generation;",
        (f"{BUDGETS}::test_of_many_at_once_only_those_pass_that_fit",),
    ),
    Mutant(
        "a child has a budget beside its maker's",
        "Requests with a token are charged to the budgets of all tokens before it",
        BUDGET_SQL,
        "FROM line l JOIN token_budgets b ON b.id = l.id ORDER",
        "FROM line l JOIN token_budgets b ON b.id = l.id AND b.id = :id ORDER",
        (f"{BUDGETS}::test_children_spend_what_their_makers_have",),
    ),
    Mutant(
        "a child is on no budget",
        "A token without a budget of its own is held to its maker's",
        BUDGET_TRIGGERS,
        "FROM tokens WHERE id = coalesce(NEW.made_with, NEW.session_from);\n    END IF;\n    RETURN NEW;",
        "FROM (SELECT NULL AS budget_id) AS nothing;\n    END IF;\n    RETURN NEW;",
        (f"{BUDGETS}::test_children_spend_what_their_makers_have",),
    ),
    Mutant(
        "extensions are free",
        "An extension is charged to the budget of the token that extends",
        "reservation_core/usecases/jobs/extend.py",
        "        await spend(uow, principal, [ask_of(change.after, reservation.duration)], now)\n",
        "",
        (f"{BUDGETS}::test_extensions_are_charged_to_whoever_extends",),
    ),
    Mutant(
        "what was held is given back, too",
        "A finished reservation is charged for the GPU time that it held",
        "migrations/versions/004x/0049_arrays.sql",
        "        JOIN allocations a ON a.reservation_id = held.id AND NOT a.planned;",
        "        JOIN allocations a ON a.reservation_id = held.id AND a.planned;",
        (f"{SPENDING}::test_a_job_that_ends_early_pays_for_what_it_held",),
    ),
    Mutant(
        "nobody asks for scopes",
        "Every request under /v1 takes the scopes that its method and address say",
        "api_service/gate.py",
        '            token_reach.require(principal, scope["method"], scope["path"])\n',
        "",
        (f"{TOKENS}::test_a_token_is_good_for_its_scopes_alone",),
    ),
    Mutant(
        "pages ask for no scopes",
        "What a page does takes the same scopes as the request that it stands for",
        "api_service/web/rest_calls.py",
        "            token_reach.require(self._principal, method, path)\n",
        "",
        (
            "tests/integration/api_service/web/people/test_sign_in.py::test_a_session_is_good_for_what_its_token_is_good_for",
        ),
    ),
    Mutant(
        "an administrator's token is one whatever its scopes",
        "Without the scope admin an administrator's token is a user's",
        "reservation_core/ports/people/identities.py",
        "self.role is Role.ADMIN and TokenScope.ADMIN in self.scopes",
        "self.role is Role.ADMIN",
        (f"{TOKENS}::test_an_administrators_token_without_admin_is_a_users",),
    ),
    Mutant(
        "a session is a bearer token",
        "What a browser keeps in its cookie is good for the pages alone",
        "api_service/access/auth.py",
        "if principal is None or _is_over(principal, now) or principal.session is not session:",
        "if principal is None or _is_over(principal, now):",
        ("tests/integration/api_service/test_access.py::test_matrix_of_reads",),
    ),
    Mutant(
        "requests leave no line",
        "Every request is in the access log, also one that was refused",
        "api_service/gate.py",
        "        self._services.access_log.note(scope, template, status, seconds)\n",
        "",
        ("tests/integration/api_service/access/test_access_log.py::test_every_request_leaves_a_line",),
    ),
    Mutant(
        "notices reach a cloud's metadata",
        "Notices never go where clouds give out credentials, whatever is listed",
        "reservation_core/domain/network/egress.py",
        "    if target in _METADATA:",
        "    if False:",
        ("tests/unit/reservation_core/domain/network/test_egress.py",),
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
    Mutant(
        "the chain waits for nobody",
        "Where an id is missing, the chain waits until the transactions that write then are over",
        CHAINING,
        "    through = ahead.through if await _are_over(uow_factory, writers) else ahead.unbroken\n",
        "    through = ahead.through\n",
        (f"{CHAIN}::test_what_commits_late_is_waited_for", f"{CHAIN}::test_many_write_and_chain_at_once"),
    ),
    Mutant(
        "several append to the chain at once",
        "One at a time appends to the chain, after the link that it saw",
        CHAINING,
        "        if latest.link != head:\n            return 0\n",
        "",
        (f"{CHAIN}::test_many_write_and_chain_at_once",),
    ),
    Mutant(
        "a month goes before it is chained",
        "A partition of the audit log stays until all of it is chained",
        CHAIN_TABLES,
        "    IF newest_id > (SELECT event_id FROM event_chain ORDER BY position DESC LIMIT 1) THEN",
        "    IF false THEN",
        (f"{CHAIN}::test_what_is_not_chained_is_not_removed",),
    ),
    Mutant(
        "links go before their events",
        "Links of the chain are removed after their events alone",
        CHAIN_TABLES,
        "WHERE OLD.at < removed_before AND OLD.event_id <= removed_through",
        "WHERE true",
        (f"{CHAIN}::test_retention_removes_no_link_whose_event_it_did_not_remove",),
    ),
    Mutant(
        "what was deleted counts as removed",
        "A missing event that is not as old as what retention removed was deleted",
        "reservation_core/domain/history/audit_chain.py",
        "return event_id <= self.through and at < self.before",
        "return event_id <= self.through",
        ("tests/unit/reservation_core/domain/history/test_audit_chain.py",),
    ),
    Mutant(
        "events beside the chain are not shown",
        "An event without a link is shown where the chain is read, and found",
        "reservation_core/domain/history/audit_chain.py",
        "            yield from map(_unchained_line, unchained.pop(event_id))\n",
        "            unchained.pop(event_id)\n",
        (f"{CHAIN}::test_an_event_in_a_hole_between_ids_is_found",),
    ),
    Mutant(
        "a container that was given some GPUs is told their numbers on the node",
        "A container counts the GPUs that it was given from 0",
        CARDS,
        "return renumbered_devices(devices) if only_these and not _is_privileged(container) else devices",
        "return devices",
        (OWN_CARDS,),
    ),
    Mutant(
        "a privileged container counts anew",
        "A privileged container counts GPUs as its node does",
        CARDS,
        "return renumbered_devices(devices) if only_these and not _is_privileged(container) else devices",
        "return renumbered_devices(devices) if only_these else devices",
        (OWN_CARDS,),
    ),
    Mutant(
        "a pod by map may name other GPUs",
        "In enforced namespaces a pod by map is given its map's GPUs and no others",
        "pod_scheduling/domain/enforcement/uncounted_gpus.py",
        "    for container in containers:\n        for variable",
        "    for container in [] if need.by_map else containers:\n        for variable",
        ("tests/unit/pod_scheduling/domain/enforcement/test_uncounted_gpus.py",),
    ),
    Mutant(
        "jobs see all GPUs though UUIDs are known",
        "A job's container is given its own GPUs alone where their UUIDs are known",
        "reservation_core/adapters/kubernetes/pods/built_pods.py",
        "case GpuAttach.ENV if (uuids := _known_uuids(spec)) is not None:",
        "case GpuAttach.ENV if (uuids := _known_uuids(spec)) is not None and not uuids:",
        ("tests/unit/reservation_core/adapters/kubernetes/pods/test_built_pods.py",),
    ),
    Mutant(
        "a port is anybody's",
        "No other job's port is reached on the same machine",
        "reservation_core/adapters/local/sessions/listening_ports.py",
        "frozenset(inode for pid in descendants(root) for inode in _sockets_of(pid) if inode in addresses)",
        "frozenset(addresses)",
        (LOCAL_SESSIONS + "test_listening_ports.py::test_a_port_is_the_pods_whose_process_listens_now",),
    ),
    Mutant(
        "passes outlive their connection",
        "An app is left within seconds when the right to it ends",
        "api_service/apps/known_passes.py",
        "now < self._until and (self.connection is None or not self.connection.over.is_set())",
        "now < self._until",
        ("tests/integration/api_service/sessions/test_app_passes.py",),
    ),
    Mutant(
        "signatures of ID tokens are not looked at",
        "An ID token counts only with its issuer's signature",
        "reservation_core/adapters/identity/oidc.py",
        '    "verify_signature": True,',
        '    "verify_signature": False,',
        ("tests/integration/api_service/people/test_login_id_tokens.py::test_forged_signatures_are_refused",),
    ),
    Mutant(
        "two people become one user",
        "Rules in which two identities could become one user stop the start",
        "reservation_core/domain/people/sign_in.py",
        '    if len([source for source in sources if "*" in rule.conditions.get(source, "*")]) > 1:',
        "    if False:",
        ("tests/unit/reservation_core/domain/people/test_sign_in.py",),
    ),
)
