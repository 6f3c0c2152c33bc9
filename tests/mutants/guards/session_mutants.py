"""Guards of sessions: who enters a job and for how long, and what keys and a job's own token are good for."""

from tests.mutants.mutant import Mutant

SQL = "reservation_core/adapters/postgres/sessions/"
CONNECTION_SQL = f"{SQL}connections.sql"
HELD = "reservation_core/runtime/sessions/connections.py"
REACH = "api_service/access/token_reach.py"
JOB_TOKENS = "api_service/access/job_tokens.py"

REST = "tests/integration/api_service/sessions/"
PROGRAMS = f"{REST}test_programs.py"
ATTACKS = f"{REST}test_attacks.py"
OF_JOB_TOKENS = f"{REST}test_job_tokens.py"
SHARES = f"{REST}test_shares.py"
KEYS = f"{REST}test_ssh_keys.py"
USECASES = "tests/integration/reservation_core/usecases/sessions/"
CONNECTIONS = f"{USECASES}test_connections.py"
INACTIVITY = f"{USECASES}test_inactivity.py"
SERVER_KEYS = f"{USECASES}test_server_keys.py"

ENTERING = (
    Mutant(
        "anybody enters a job",
        "A job's owner enters it, and users it is shared with; an administrator does not",
        CONNECTION_SQL,
        "WHERE r.kind = 'job' AND (\n",
        "WHERE r.kind = 'job' AND (true OR\n",
        (f"{PROGRAMS}::test_only_the_owner_and_those_it_is_shared_with_enter",),
    ),
    Mutant(
        "a job that is shared with one is shared with all",
        "A share lets its own user in, and nobody else",
        CONNECTION_SQL,
        "WHERE s.reservation_id = r.id AND s.user_id = :user_id)",
        "WHERE s.reservation_id = r.id)",
        (f"{PROGRAMS}::test_only_the_owner_and_those_it_is_shared_with_enter",),
    ),
    Mutant(
        "a shared job takes the name of one's own",
        "A name stands for one's own job before a shared one",
        "reservation_core/usecases/sessions/enter.py",
        "    jobs = [job for job in jobs if job.own] or jobs\n",
        "",
        (f"{ATTACKS}::test_ones_own_job_goes_before_one_that_is_shared_under_its_name",),
    ),
    Mutant(
        "shares without number",
        "A job is shared with a bounded number of users",
        f"{SQL}shares.sql",
        "WHERE s.reservation_id = :id) < :most\n",
        "WHERE s.reservation_id = :id) < :most * 1000\n",
        (f"{SHARES}::test_a_job_has_so_many_users_and_no_more",),
    ),
    Mutant(
        "a stream outlives its token",
        "A stream ends when the token that opened it is revoked",
        CONNECTION_SQL,
        "WHERE t.id = given.token_id AND t.revoked_at IS NULL",
        "WHERE t.id = given.token_id",
        (f"{PROGRAMS}::test_a_connection_ends_with_the_right_to_it",),
    ),
    Mutant(
        "a stream outlives its token's time",
        "A stream ends when the token that opened it expires",
        CONNECTION_SQL,
        "AND (t.expires_at IS NULL OR t.expires_at > :now))",
        ")",
        (f"{PROGRAMS}::test_a_connection_ends_with_the_right_to_it",),
    ),
    Mutant(
        "a stream outlives its key",
        "A stream ends when the SSH key that opened it is removed",
        CONNECTION_SQL,
        "OR EXISTS (SELECT 1 FROM ssh_keys k WHERE k.id = given.token_id))",
        "OR given.token_id LIKE 'key-%')",
        ("tests/integration/ssh_gateway/test_keys.py::test_a_revoked_key_ends_what_is_open",),
    ),
    Mutant(
        "a stream outlives its share",
        "A stream ends when the share is withdrawn",
        CONNECTION_SQL,
        "WHERE (r.user_id = given.user_id\n",
        "WHERE (true\n",
        (f"{PROGRAMS}::test_only_the_owner_and_those_it_is_shared_with_enter",),
    ),
    Mutant(
        "a stream outlives its user",
        "A stream ends when its user is disabled",
        CONNECTION_SQL,
        "ON u.id = given.user_id AND u.disabled_at IS NULL",
        "ON u.id = given.user_id",
        (f"{PROGRAMS}::test_a_connection_ends_with_the_right_to_it",),
    ),
    Mutant(
        "a stream goes on in another attempt",
        "A stream ends with the attempt of the job that it entered",
        CONNECTION_SQL,
        " AND r.attempt = given.attempt\n",
        " AND given.attempt > 0\n",
        (f"{PROGRAMS}::test_a_connection_ends_with_the_right_to_it",),
    ),
    Mutant(
        "a stream outlives its job",
        "A stream ends when its job does not run any more",
        CONNECTION_SQL,
        "ON r.id = given.job_id AND r.status = 'running' AND",
        "ON r.id = given.job_id AND",
        (f"{PROGRAMS}::test_a_connection_ends_with_the_right_to_it",),
    ),
    Mutant(
        "a stream ends without a reason",
        "A stream that must end says why",
        HELD,
        "        self.why = why\n",
        "",
        (f"{PROGRAMS}::test_a_connection_ends_with_the_right_to_it",),
    ),
    Mutant(
        "connections without number",
        "A user has a bounded number of connections",
        CONNECTION_SQL,
        "AND refreshed_at > :alive_since) < :most\n",
        "AND refreshed_at > :alive_since) < :most * 1000\n",
        (f"{CONNECTIONS}::test_a_user_has_no_more_connections_than_allowed_however_they_come",),
    ),
    Mutant(
        "connections are counted without a lock",
        "The connections of a user are counted one transaction after another",
        "reservation_core/usecases/sessions/enter.py",
        "    await uow.connections.lock_of_user(visitor.user_id)\n",
        "",
        (f"{CONNECTIONS}::test_a_connection_waits_until_another_of_its_user_is_counted",),
    ),
    Mutant(
        "connections of killed processes count for ever",
        "A connection that no process refreshes does not count",
        CONNECTION_SQL,
        "WHERE user_id = :user_id AND refreshed_at > :alive_since) <",
        "WHERE user_id = :user_id) <",
        (f"{CONNECTIONS}::test_connections_of_a_process_that_was_killed_count_no_more",),
    ),
    Mutant(
        "connections that live are forgotten",
        "A connection is forgotten only when it was not refreshed for a minute",
        CONNECTION_SQL,
        "WHERE refreshed_at < :alive_since\n",
        "WHERE refreshed_at < :alive_since OR true\n",
        (f"{CONNECTIONS}::test_streams_outlive_an_outage_of_the_database",),
    ),
    Mutant(
        "connections of killed processes stay stored",
        "Connections of processes that were killed are deleted",
        HELD,
        "                await uow.connections.forget_abandoned(now)\n",
        "",
        (f"{CONNECTIONS}::test_connections_of_a_process_that_was_killed_count_no_more",),
    ),
    Mutant(
        "a stream that was closed is stored again",
        "A connection that is closed during a refresh is deleted after it",
        HELD,
        "            self._closed += [one.entered.connection_id for one in held if",
        "            self._closed += [one.entered.connection_id for one in held[:0] if",
        (f"{CONNECTIONS}::test_a_stream_that_is_closed_during_a_refresh_is_not_stored_again",),
    ),
    Mutant(
        "a warning comes again and again",
        "A terminal is warned of each moment before the end once",
        HELD,
        "        if due - self._warned and self.show is not None:",
        "        if due and self.show is not None:",
        (f"{PROGRAMS}::test_a_terminal_is_warned_before_the_end_once",),
    ),
    Mutant(
        "a connected session is inactive",
        "A session to which somebody is connected does not end as inactive",
        CONNECTION_SQL,
        "AND c.refreshed_at + r.inactivity > :now\n",
        "AND c.refreshed_at + r.inactivity > :now AND false\n",
        (f"{INACTIVITY}::test_it_goes_on_while_somebody_is_connected_and_then_for_its_time",),
    ),
    Mutant(
        "a session ends because its server was killed",
        "A connection of a process that was killed counts as activity until it was last seen",
        CONNECTION_SQL,
        "AND c.refreshed_at + r.inactivity > :now\n",
        "AND c.refreshed_at + interval '60 s' > :now\n",
        (f"{ATTACKS}::test_a_session_does_not_end_because_its_server_was_killed",),
    ),
    Mutant(
        "a job with a command is a session",
        "A job with a command does not end as inactive",
        "reservation_core/usecases/jobs/submit.py",
        "    if request.inactivity is not None and request.workload.command:\n",
        "    if False:\n",
        (f"{INACTIVITY}::test_a_job_with_a_command_can_not_have_it",),
    ),
)

CREDENTIALS = (
    Mutant(
        "a token that reads enters jobs",
        "Entering a job takes the scope sessions",
        REACH,
        "    if _ENTERS.fullmatch(path):\n",
        "    if False:\n",
        (
            "tests/integration/api_service/people/test_token_scopes.py::test_a_token_is_good_for_its_scopes_alone",
            f"{ATTACKS}::test_a_token_that_reads_enters_nothing_by_an_odd_address",
        ),
    ),
    Mutant(
        "an odd address needs no scope",
        "An address that routes take for a WebSocket into a job needs its scope, too",
        REACH,
        '    path = path.removesuffix("\\n")  # routes ignore it, too\n',
        "",
        (f"{ATTACKS}::test_a_token_that_reads_enters_nothing_by_an_odd_address",),
    ),
    Mutant(
        "a job's token does anything",
        "A job's token extends its own job, and can do nothing else",
        JOB_TOKENS,
        'if not extends and (scope["method"], scope["path"]) not in _of_files(job_id):',
        "if False:",
        (f"{OF_JOB_TOKENS}::test_it_can_do_nothing_else",),
    ),
    Mutant(
        "a job's token outlives its attempt",
        "A job's token ends with the attempt that it was made for",
        JOB_TOKENS,
        "if job.attempt != attempt or not in_time:",
        "if not in_time:",
        (f"{OF_JOB_TOKENS}::test_it_ends_with_the_attempt_and_the_owner",),
    ),
    Mutant(
        "a job's token outlives its owner",
        "A job's token ends when the owner is disabled",
        JOB_TOKENS,
        " or owner is None or owner.disabled_at is not None:",
        " or owner is None:",
        (f"{OF_JOB_TOKENS}::test_it_ends_with_the_attempt_and_the_owner",),
    ),
    Mutant(
        "a job's token is whatever names a job",
        "A job's token is one that the server's key made",
        "reservation_core/domain/sessions/job_tokens.py",
        "if hmac.compare_digest(text.encode(), job_token(key, job_id, attempt).encode()) else None",
        "if hmac.compare_digest(text.encode(), text.encode()) else None",
        ("tests/unit/reservation_core/domain/sessions/test_job_tokens.py",),
    ),
    Mutant(
        "wrong tokens of jobs at any pace",
        "Wrong tokens of jobs are slowed by address",
        JOB_TOKENS,
        "        async with self._pace.checking(scope):\n",
        "        if scope:\n",
        (f"{OF_JOB_TOKENS}::test_a_wrong_one_is_refused_and_counted",),
    ),
    Mutant(
        "keys without number",
        "A user has a bounded number of SSH keys",
        f"{SQL}ssh_keys.sql",
        "WHERE k.user_id = :user_id) < :most\n",
        "WHERE k.user_id = :user_id) < :most * 1000\n",
        (f"{KEYS}::test_a_user_has_so_many_keys_and_no_more",),
    ),
    Mutant(
        "a weak key is taken",
        "RSA keys that are too short are refused",
        "reservation_core/domain/sessions/public_keys.py",
        "_FEWEST_RSA_BITS: Final = 2048",
        "_FEWEST_RSA_BITS: Final = 512",
        ("tests/unit/reservation_core/domain/sessions/test_public_keys.py",),
    ),
    Mutant(
        "one removes another user's key",
        "A user removes the user's own SSH keys alone",
        "reservation_core/usecases/sessions/ssh_keys.py",
        "uow.ssh_keys.remove(key_id, visible_user(principal))",
        "uow.ssh_keys.remove(key_id, None if visible_user(principal) else None)",
        (f"{KEYS}::test_keys_are_added_listed_and_removed",),
    ),
    Mutant(
        "a disabled user's key opens jobs",
        "A key stands for users who are not disabled",
        f"{SQL}ssh_keys.sql",
        "WHERE k.fingerprint = :fingerprint AND u.disabled_at IS NULL\n",
        "WHERE k.fingerprint = :fingerprint\n",
        (f"{SERVER_KEYS}::test_a_key_may_be_several_peoples_and_disabled_ones_are_left_out",),
    ),
    Mutant(
        "the server's keys lie open",
        "The SSH keys of the server are sealed where there is a sealing key, each for its purpose",
        "reservation_core/adapters/postgres/sessions/server_keys.py",
        "sealed = self._sealing.seal(fresh.decode(), _owner_of(purpose))",
        "sealed = fresh.decode()",
        (f"{SERVER_KEYS}::test_keys_are_sealed_where_there_is_a_sealing_key",),
    ),
    Mutant(
        "a certificate lasts longer than its token",
        "A certificate is good no longer than the token that it was made with",
        "reservation_core/usecases/sessions/ssh_certificates.py",
        "else min(now + VALID_FOR, reach.expires_at)",
        "else now + VALID_FOR",
        (f"{KEYS}::test_a_certificate_ends_with_its_token",),
    ),
    Mutant(
        "a certificate is good whatever its token",
        "A certificate is worth what its token is, and nothing once the token is revoked",
        "reservation_core/adapters/postgres/people/identities.sql",
        " AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)\n  AND u.disabled_at IS NULL;\n\n"
        "-- name: create_user",
        "\n  AND u.disabled_at IS NULL AND CAST(:now AS timestamptz) IS NOT NULL;\n\n-- name: create_user",
        (
            "tests/integration/ssh_gateway/test_keys.py::test_a_certificate_opens_jobs_of_its_user_while_its_token_works",
        ),
    ),
    Mutant(
        "a certificate names any user",
        "A certificate stands for the user of its token alone",
        "reservation_core/usecases/sessions/server_keys.py",
        'if principal is not None and principal.user == named["user"] else None',
        'if principal is not None and principal.user != "" else None',
        (f"{SERVER_KEYS}::test_a_certificate_is_worth_what_its_token_is",),
    ),
)

SESSIONS = (*ENTERING, *CREDENTIALS)
