"""Guards of apps of jobs in browsers: who opens one, and what passes between it, its browser and other sites."""

from tests.mutants.mutant import Mutant

PASS_SQL = "reservation_core/adapters/postgres/sessions/app_passes.sql"
APPS = "api_service/apps/apps.py"
HEADERS = "api_service/apps/exchange_headers.py"
HOSTS = "api_service/apps/hosts.py"

OF_PASSES = "tests/integration/api_service/sessions/test_app_passes.py"
OF_APPS = "tests/integration/api_service/sessions/test_apps.py"

OPEN_APPS = (
    Mutant(
        "a ticket is good twice",
        "A ticket opens an app once",
        PASS_SQL,
        "UPDATE app_passes SET digest = :passed, used_at = :now, expires_at = :until\n",
        "INSERT INTO app_passes (digest, reservation_id, user_id, token_id, port, used_at, expires_at)\n"
        "SELECT CAST(:passed AS bytea), reservation_id, user_id, token_id, port, CAST(:now AS timestamptz),\n"
        "    CAST(:until AS timestamptz) FROM app_passes\n",
        (f"{OF_APPS}::test_a_ticket_is_good_once_for_its_own_app",),
    ),
    Mutant(
        "a pass is a ticket",
        "What a browser keeps for an app is no ticket, so it does not renew itself",
        PASS_SQL,
        "AND port = :port AND used_at IS NULL AND expires_at > :now\n",
        "AND port = :port AND expires_at > :now\n",
        (f"{OF_PASSES}::test_a_pass_is_no_ticket_and_expires",),
    ),
    Mutant(
        "a ticket opens any port",
        "A ticket is for one port",
        PASS_SQL,
        "AND port = :port AND used_at IS NULL",
        "AND (port = :port OR true) AND used_at IS NULL",
        (f"{OF_APPS}::test_a_ticket_is_good_once_for_its_own_app",),
    ),
    Mutant(
        "a ticket opens any job",
        "A ticket is for one job",
        PASS_SQL,
        "WHERE digest = :ticket AND reservation_id = :job_id AND",
        "WHERE digest = :ticket AND (reservation_id = :job_id OR true) AND",
        (f"{OF_APPS}::test_a_ticket_is_good_once_for_its_own_app",),
    ),
    Mutant(
        "a ticket is good for ever",
        "A ticket that has expired opens nothing",
        PASS_SQL,
        "AND used_at IS NULL AND expires_at > :now\n",
        "AND used_at IS NULL AND CAST(:now AS timestamptz) IS NOT NULL\n",
        (f"{OF_APPS}::test_a_ticket_is_good_once_for_its_own_app",),
    ),
    Mutant(
        "a ticket is good for a day",
        "A ticket expires after a minute",
        "reservation_core/usecases/sessions/app_tickets.py",
        "TICKET_LASTS = timedelta(seconds=60)",
        "TICKET_LASTS = timedelta(days=1)",
        (f"{OF_APPS}::test_tickets_end_after_a_minute",),
    ),
    Mutant(
        "a pass opens any app",
        "What a browser keeps for an app opens no other",
        PASS_SQL,
        "AND p.reservation_id = :job_id AND p.port = :port AND",
        "AND (p.reservation_id = :job_id OR true) AND (p.port = :port OR true) AND",
        (f"{OF_PASSES}::test_a_pass_is_good_for_its_own_app_alone",),
    ),
    Mutant(
        "a pass is good for ever",
        "What a browser keeps for an app expires",
        PASS_SQL,
        "  AND p.expires_at > :now AND u.disabled_at",
        "  AND u.disabled_at",
        (f"{OF_PASSES}::test_a_pass_is_no_ticket_and_expires",),
    ),
    Mutant(
        "a pass outlives its token",
        "What a browser keeps for an app ends with the token that the ticket was made with",
        PASS_SQL,
        "AND u.disabled_at IS NULL AND t.revoked_at IS NULL\n",
        "AND u.disabled_at IS NULL\n",
        (f"{OF_APPS}::test_an_app_is_left_when_the_right_to_it_ends",),
    ),
    Mutant(
        "a pass is anybody's who is in the app",
        "A user comes into an app by the user's own right, whoever else uses it",
        "api_service/apps/apps_in_use.py",
        "key = UseKey(visitor.user_id, job_id, visitor.credential)",
        "key = UseKey(0, job_id, None)",
        (f"{OF_APPS}::test_one_users_right_is_not_anothers",),
    ),
    Mutant(
        "pages of other origins use an app",
        "An app takes requests and WebSockets of its own pages alone",
        APPS,
        "if not comes_from_here or given not in",
        "if not comes_from_here and given not in",
        (f"{OF_APPS}::test_other_sites_ask_for_nothing",),
    ),
    Mutant(
        "an app is loaded into another site",
        "Another site only links to an app: it loads and shows nothing of it",
        APPS,
        '            and headers.first(scope, b"sec-fetch-dest") == "document"\n',
        "",
        (f"{OF_APPS}::test_other_sites_ask_for_nothing",),
    ),
    Mutant(
        "a form of another site changes an app",
        "A link from another site reads, and changes nothing",
        APPS,
        'scope["method"] in _SAFE\n            and headers',
        "headers",
        (f"{OF_APPS}::test_other_sites_ask_for_nothing",),
    ),
    Mutant(
        "an app gets our cookies",
        "The cookies of the pages and of the app's pass never reach an app",
        HEADERS,
        "if not _is_ours(part := cookie.strip()) and part)",
        "if (part := cookie.strip()))",
        (f"{OF_APPS}::test_requests_reach_the_app_without_what_is_ours",),
    ),
    Mutant(
        "an app gets our tokens",
        "A token of this server never reaches an app",
        HEADERS,
        'if name == b"authorization" and _OUR_TOKENS in value.lower():',
        "if False:",
        (f"{OF_APPS}::test_requests_reach_the_app_without_what_is_ours",),
    ),
    Mutant(
        "an app sets our cookies",
        "An app sets no cookie that has a name of ours",
        HEADERS,
        "    if _is_ours(value.strip()):\n",
        "    if False:\n",
        (f"{OF_APPS}::test_answers_come_back_without_cookies_for_other_hosts",),
    ),
    Mutant(
        "an app sets cookies of other hosts",
        "An app's cookies are for its own host alone",
        HEADERS,
        'if part.partition(b"=")[0].strip().lower() != b"domain"]',
        "if part]",
        (f"{OF_APPS}::test_answers_come_back_without_cookies_for_other_hosts",),
    ),
    Mutant(
        "an app is shown in frames of others",
        "An app's answers are for its own origin alone",
        HEADERS,
        "    return [*passed, *_OUR_ANSWER]\n",
        "    return passed\n",
        (f"{OF_APPS}::test_answers_come_back_without_cookies_for_other_hosts",),
    ),
    Mutant(
        "a name that begins like an app's is one",
        "An app's name is its job's id and a port, and nothing more",
        HOSTS,
        "found = _LABEL.fullmatch(label)",
        "found = _LABEL.match(label)",
        (f"{OF_APPS}::test_hosts_without_an_app_are_told_apart",),
    ),
    Mutant(
        "names of no app lead to the pages",
        "A name below that of the apps never leads to REST and the pages",
        HOSTS,
        'return host.endswith(f".{self.name}") and host',
        "return self.app(scope) is not None and host",
        (f"{OF_APPS}::test_hosts_without_an_app_are_told_apart",),
    ),
)
