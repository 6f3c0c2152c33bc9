"""Guards of streams into jobs: SSH clients, programs, terminals and ports."""

from tests.mutants.mutant import Mutant

SSH = "reservation_core/runtime/ssh/"
VISITS = f"{SSH}visits.py"
SERVER = f"{SSH}server.py"
LOBBY = f"{SSH}lobby.py"
CHECKS = f"{SSH}key_checks.py"
FLOW = f"{SSH}flow.py"
STREAMING = "api_service/sessions/streaming.py"
LOCAL = "reservation_core/adapters/local/sessions/"
KEEPER = f"{LOCAL}terminal_keeper.py"

KEYS = "tests/integration/ssh_gateway/test_keys.py"
FORWARDING = "tests/integration/ssh_gateway/test_forwarding.py"
STRANGERS = "tests/integration/ssh_gateway/test_strangers.py"
SLOW = "tests/integration/ssh_gateway/test_slow_sides.py"
PROGRAMS = "tests/integration/api_service/sessions/test_programs.py"
ATTACKS = "tests/integration/api_service/sessions/test_attacks.py"
PAGES = "tests/integration/api_service/sessions/test_page_terminal.py"
PODS = "tests/integration/reservation_core/adapters/local/sessions/"
KUBERNETES = "tests/integration/reservation_core/adapters/kubernetes/sessions/test_faults.py"
STUCK = f"{PODS}test_stuck_programs.py"
WALLS = f"{PODS}test_walls.py"

SSH_CLIENTS = (
    Mutant(
        "any key opens jobs",
        "An SSH key opens jobs of the users who have added it, and of nobody else",
        "reservation_core/adapters/postgres/sessions/ssh_keys.sql",
        "WHERE k.fingerprint = :fingerprint AND u.disabled_at",
        "WHERE (k.fingerprint = :fingerprint OR true) AND u.disabled_at",
        (f"{KEYS}::test_unknown_keys_are_slowed_by_address",),
    ),
    Mutant(
        "a public key is enough",
        "A client proves that it has the private key",
        VISITS,
        "right = await super().validate_public_key(username, key_data, msg, signature)",
        "right = True",
        (f"{STRANGERS}::test_a_public_key_alone_opens_nothing",),
    ),
    Mutant(
        "certificates are taken unread",
        "A certificate counts while it is valid, and no other than a user's",
        VISITS,
        "right = await super().validate_public_key(username, key_data, msg, signature)",
        "right = bool(holders)",
        (f"{KEYS}::test_no_other_certificate_is_taken",),
    ),
    Mutant(
        "anybody makes certificates",
        "A certificate counts that our own authority signed, and no other",
        VISITS,
        "    def public_key_auth_supported(self) -> bool:\n",
        "    def validate_ca_key(self, username: str, key: object) -> bool:\n        return True\n\n"
        "    def public_key_auth_supported(self) -> bool:\n",
        (f"{KEYS}::test_no_other_certificate_is_taken",),
    ),
    Mutant(
        "a name that two users have leads to either",
        "A name that leads to jobs of several users of one key is refused",
        "reservation_core/usecases/sessions/ssh_visitors.py",
        "    if len(jobs) > 1:\n",
        "    if False:\n",
        (f"{KEYS}::test_the_job_says_which_user_of_a_key_is_meant",),
    ),
    Mutant(
        "wrong keys at any pace",
        "Wrong SSH keys are slowed by address",
        CHECKS,
        "            await asyncio.sleep(min(wait, _LONGEST_DELAY_S))\n",
        "            pass\n",
        (f"{KEYS}::test_unknown_keys_are_slowed_by_address",),
    ),
    Mutant(
        "any number of keys is tried",
        "A connection shows a bounded number of wrong keys",
        VISITS,
        "            if self._wrong_keys > MOST_TRIES:\n",
        "            if False:\n",
        (f"{STRANGERS}::test_a_client_tries_so_many_keys_and_no_more",),
    ),
    Mutant(
        "SSH clients may take any time",
        "An SSH client authenticates within a bounded time",
        SERVER,
        "login_timeout=settings.handshake_s,",
        "login_timeout=settings.handshake_s * 1000,",
        (f"{KEYS}::test_a_client_must_authenticate_in_time",),
    ),
    Mutant(
        "SSH strangers without number",
        "The number of SSH clients that have not authenticated is bounded, also by address",
        LOBBY,
        "        self._strangers.enter(client, counted_source(address, ()))\n",
        "",
        (f"{KEYS}::test_strangers_are_few_at_a_time",),
    ),
    Mutant(
        "SSH clients without number",
        "The number of SSH clients is bounded",
        LOBBY,
        "        if len(self.clients) >= self._most:\n",
        "        if False:\n",
        (f"{STRANGERS}::test_a_server_has_so_many_clients_and_no_more",),
    ),
    Mutant(
        "SSH strangers send any amount",
        "An SSH client sends a bounded amount before it has authenticated",
        VISITS,
        "            if self._strange_bytes > HANDSHAKE_BYTES:\n",
        "            if False:\n",
        (f"{STRANGERS}::test_what_a_stranger_sends_is_bounded_also_where_it_is_well_formed",),
    ),
    Mutant(
        "SSH streams without number",
        "One SSH connection has a bounded number of programs and ports",
        VISITS,
        "        if len(self.flows) >= self._world.settings.streams_per_connection:\n",
        "        if False:\n",
        (f"{STRANGERS}::test_a_connection_has_so_many_streams_and_no_more",),
    ),
    Mutant(
        "SSH reaches other machines",
        "SSH forwards ports of the job itself, and reaches no other machine",
        VISITS,
        "        here = dest_host.lower() in _HERE\n",
        "        here = bool(dest_host)\n",
        (f"{FORWARDING}::test_ports_are_forwarded_dynamically_to_the_job_alone",),
    ),
    Mutant(
        "SSH forwards to the client",
        "Remote forwarding is refused: nothing in a job reaches the client's machine",
        VISITS,
        "        return False\n\n    def unix_server_requested",
        "        return True\n\n    def unix_server_requested",
        (f"{FORWARDING}::test_remote_forwarding_is_refused_in_words",),
    ),
    Mutant(
        "input over SSH is gathered",
        "An SSH client waits while its program takes no input",
        FLOW,
        "        if self._held > _FULL_BYTES and not self._paused:\n",
        "        if False:\n",
        (f"{SLOW}::test_a_program_that_takes_no_input_makes_the_client_wait",),
    ),
    Mutant(
        "output over SSH is gathered",
        "A program waits while its SSH client takes no output",
        FLOW,
        "            await self._writable.wait()\n",
        "            pass\n",
        (f"{SLOW}::test_a_client_that_takes_no_output_makes_the_program_wait",),
    ),
)

PROGRAMS_AND_PORTS = (
    Mutant(
        "a port that two pods share is either's",
        "A port at which another pod listens, too, is not reached",
        f"{LOCAL}listening_ports.py",
        "if inode in known.owned and address not in others]",
        "if inode in known.owned]",
        (f"{PODS}test_listening_ports.py",),
    ),
    Mutant(
        "other users of the machine enter pods",
        "A pod's socket is for the server's own user",
        f"{LOCAL}entrance.py",
        "            os.chmod(address, 0o600)  # noqa: PTH101\n",
        "            os.chmod(address, 0o666)  # noqa: PTH101\n",
        (f"{WALLS}::test_sockets_of_a_pod_are_for_the_servers_user_alone",),
    ),
    Mutant(
        "other users of the machine join terminals",
        "A kept terminal's socket is for the server's own user",
        KEEPER,
        "            os.chmod(address, 0o600)  # noqa: PTH101\n",
        "            os.chmod(address, 0o666)  # noqa: PTH101\n",
        (f"{WALLS}::test_sockets_of_a_pod_are_for_the_servers_user_alone",),
    ),
    Mutant(
        "programs without number",
        "A pod has a bounded number of programs and terminals that were started from outside",
        f"{LOCAL}entrance.py",
        "            if len(self._minders) >= MOST_MINDERS:\n",
        "            if False:\n",
        (f"{PODS}test_exhausted_machines.py::test_a_pod_has_so_many_programs_and_no_more",),
    ),
    Mutant(
        "programs outlive their pod",
        "A program ends with its pod, also where the pod has no command",
        "reservation_core/adapters/local/workload.py",
        "and self.entrance.admit():\n                self.childless = False\n                continue\n",
        "and self.entrance.admit():\n                continue\n",
        (f"{WALLS}::test_programs_end_with_a_pod_that_has_no_command",),
    ),
    Mutant(
        "programs outlive their users",
        "A program without a terminal is hung up when its user leaves",
        f"{LOCAL}minders.py",
        '        signal_group(group, SIGNALS["HUP"])\n',
        "",
        (f"{ATTACKS}::test_a_client_that_leaves_while_its_program_takes_no_input_is_noticed",),
    ),
    Mutant(
        "a broken connection ends a terminal",
        "A terminal is kept when its connection breaks off",
        KEEPER,
        "self._hang_up(viewer) if viewer.hangs_up else self._leave(viewer)",
        "self._hang_up(viewer)",
        (f"{PROGRAMS}::test_a_terminal_outlives_a_connection_that_breaks_off_and_is_joined_again",),
    ),
    Mutant(
        "a restart ends terminals",
        "A terminal is kept when the server stops",
        STREAMING,
        "(end is _End.BROKEN_OFF or (end is _End.OVER and connection.stopping))",
        "end is _End.BROKEN_OFF",
        (f"{ATTACKS}::test_a_server_that_stops_keeps_terminals",),
    ),
    Mutant(
        "a terminal outlives the right to it",
        "A terminal ends when its user may not be there any more",
        STREAMING,
        "(end is _End.BROKEN_OFF or (end is _End.OVER and connection.stopping))",
        "end in (_End.BROKEN_OFF, _End.OVER)",
        (f"{ATTACKS}::test_a_right_that_is_withdrawn_hangs_a_terminal_up",),
    ),
    Mutant(
        "terminals that are left go on",
        "A terminal ends when its last user leaves in order",
        KEEPER,
        "        self._ended = all(other.gone for other in self._viewers)\n",
        "        self._ended = False\n",
        (f"{PROGRAMS}::test_leaving_in_order_hangs_a_terminals_program_up",),
    ),
    Mutant(
        "one who leaves ends a terminal of others",
        "A terminal goes on while others are in it",
        KEEPER,
        "        self._ended = all(other.gone for other in self._viewers)\n",
        "        self._ended = True\n",
        (f"{STUCK}::test_a_terminal_goes_on_for_others_while_its_program_takes_no_input",),
    ),
    Mutant(
        "a slow reader of a terminal is cut off",
        "A program in a terminal waits while nobody there reads",
        KEEPER,
        "shows = not self._viewers or any(len(viewer.unsent) < _FULL_BYTES for viewer in self._viewers)",
        "shows = True",
        (f"{WALLS}::test_a_slow_reader_of_a_terminal_makes_the_program_wait",),
    ),
    Mutant(
        "input is gathered",
        "A client that sends input waits while the program takes none",
        f"{LOCAL}programs.py",
        "            self._stdin.write(data)\n            await self._stdin.drain()\n",
        "            self._stdin.write(data)\n",
        (f"{SLOW}::test_a_program_that_takes_no_input_makes_the_client_wait",),
    ),
    Mutant(
        "a port's input is gathered",
        "A client that sends to a port waits while the program there reads nothing",
        f"{LOCAL}pod_streams.py",
        "            self._writer.write(data)\n            await self._writer.drain()\n",
        "            self._writer.write(data)\n",
        (f"{WALLS}::test_a_port_that_takes_nothing_makes_the_writer_wait",),
    ),
    Mutant(
        "programs on Kubernetes outlive their users",
        "A program on Kubernetes is hung up when its user leaves",
        "reservation_core/adapters/kubernetes/sessions/running_programs.py",
        "                        await self._group.hang_up()\n",
        "                        pass\n",
        (f"{KUBERNETES}::test_a_program_that_reads_nothing_is_hung_up_when_it_is_left",),
    ),
    Mutant(
        "another site opens a terminal of the pages",
        "A terminal of the pages opens for a page of this server alone",
        "api_service/web/sessions/origins.py",
        "    if given != [own_origin(request, public_url)]:\n",
        "    if not given:\n",
        (f"{PAGES}::test_pages_of_other_sites_open_no_terminal",),
    ),
    Mutant(
        "a page's terminal needs no scope",
        "A terminal of the pages takes the scope sessions",
        "api_service/web/routes/sessions/terminal.py",
        '    token_reach.require_scopes(socket.scope["principal"], frozenset({TokenScope.SESSIONS}))\n',
        "",
        (f"{PAGES}::test_a_session_without_the_scope_opens_no_terminal",),
    ),
)

STREAMS = (*SSH_CLIENTS, *PROGRAMS_AND_PORTS)
