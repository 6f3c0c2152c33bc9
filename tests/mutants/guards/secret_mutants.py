"""Guards of users' secrets: for whom a value opens, and where none may be."""

from tests.mutants.mutant import Mutant

STORE = "reservation_core/adapters/postgres/people/user_secrets.py"
STORE_SQL = "reservation_core/adapters/postgres/people/user_secrets.sql"
RULES = "reservation_core/domain/sessions/secret_uses.py"
SUPERVISOR = "reservation_core/adapters/local/supervisor.py"
DIRECTORIES = "reservation_core/adapters/local/pod_directories.py"

OF_REST = "tests/integration/api_service/people/test_secrets.py"
OF_STORE = "tests/integration/reservation_core/adapters/postgres/people/test_user_secrets.py"
OF_JOBS = "tests/integration/reservation_core/usecases/running/test_secrets_of_jobs.py"
OF_LOCAL_PODS = "tests/integration/reservation_core/adapters/local/test_secrets.py"
OF_KUBERNETES = "tests/integration/reservation_core/adapters/kubernetes/jobs/test_pod_secrets.py"

SECRETS = (
    Mutant(
        "a secret opens for anybody",
        "A secret is sealed for its owner and its name: a row that was moved opens for nobody",
        STORE,
        'return f"secret {name} of user {user_id}"',
        'return "secret"',
        (f"{OF_STORE}::test_a_row_that_was_moved_opens_for_nobody",),
    ),
    Mutant(
        "the database takes secrets that are not sealed",
        "The table of secrets refuses a value that is not sealed",
        "migrations/versions/004x/0043_user_secrets.sql",
        " AND sealed ~ '^gpu-dev:sealed:1:[0-9a-f]{8}:[A-Za-z0-9+/]+={0,2}$'",
        "",
        (f"{OF_STORE}::test_the_database_takes_sealed_values_alone",),
    ),
    Mutant(
        "secrets are stored without a key",
        "Without a key no secret is stored",
        STORE,
        "if not self._sealing.seals:",
        "if False:",
        (f"{OF_STORE}::test_without_keys_nothing_is_stored", f"{OF_REST}::test_without_a_key_no_secret_is_stored"),
    ),
    Mutant(
        "a new key leaves what others have sealed",
        "Secrets of former keys are sealed again with the first key",
        STORE_SQL,
        "UPDATE user_secrets SET sealed = :sealed WHERE user_id = :user_id AND name = :name;",
        "UPDATE user_secrets SET sealed = sealed WHERE user_id = :user_id AND name = :name AND :sealed <> '';",
        (f"{OF_STORE}::test_a_new_key_seals_all_again_and_the_old_one_can_go",),
    ),
    Mutant(
        "secrets without number",
        "A user has a bounded number of secrets",
        STORE_SQL,
        "WHERE s.user_id = :user_id) < :most\n",
        "WHERE s.user_id = :user_id) < :most * 1000\n",
        (f"{OF_REST}::test_a_user_has_so_many_at_most",),
    ),
    Mutant(
        "jobs name secrets that don't exist",
        "A job that names a secret its owner does not have is refused before anything is stored",
        "api_service/requests/submitted_jobs.py",
        "    if body.secrets:\n",
        "    if False:\n",
        (f"{OF_REST}::test_secrets_that_do_not_exist_are_refused_before_anything_is_stored",),
    ),
    Mutant(
        "secrets override variables",
        "A secret is no variable that the job or another secret sets",
        RULES,
        "if name in variables or names.count(name) > 1:",
        "if False:",
        (f"{OF_REST}::test_uses_that_are_refused",),
    ),
    Mutant(
        "a batch makes pods without their secrets",
        "A pod is made with the secrets of its job, or not at all",
        "reservation_core/usecases/running/create_pods_together.py",
        "        and not row.workload.secrets\n",
        "",
        (f"{OF_JOBS}::test_jobs_with_secrets_are_not_made_in_a_batch_which_reads_none",),
    ),
    Mutant(
        "a job starts without a deleted secret",
        "A job whose secret was deleted does not start",
        "reservation_core/usecases/running/perform_pod_operations.py",
        "    if missing:\n",
        "    if False:\n",
        (f"{OF_JOBS}::test_a_secret_that_was_deleted_fails_the_job_by_name",),
    ),
    Mutant(
        "secrets outlive their job",
        "A local pod's secrets are removed when its processes have ended",
        SUPERVISOR,
        "    remove_secrets(pod.dir)\n",
        "",
        (f"{OF_LOCAL_PODS}::test_a_job_gets_its_secrets_and_leaves_none",),
    ),
    Mutant(
        "secrets outlive a killed supervisor",
        "A pod that has lost its supervisor leaves no secrets",
        DIRECTORIES,
        "            remove_secrets(str(directory))\n",
        "",
        (f"{OF_LOCAL_PODS}::test_they_are_removed_when_the_supervisor_was_killed",),
    ),
    Mutant(
        "a restart leaves secrets",
        "Secrets that a killed process has left are removed at the next start",
        DIRECTORIES,
        "        self._remove_secrets_left(now)\n",
        "",
        (f"{OF_LOCAL_PODS}::test_a_restart_removes_what_killed_processes_have_left",),
    ),
    Mutant(
        "a variable's secret stays in a file",
        "The file of secret variables is removed once the supervisor has read it",
        SUPERVISOR,
        "        remove_variables(pod_dir)\n",
        "",
        (f"{OF_LOCAL_PODS}::test_while_it_runs_the_values_are_in_files_of_the_user_alone",),
    ),
    Mutant(
        "Secrets of Kubernetes outlive their pods",
        "A pod's Secret belongs to the pod from its first moment, so that Kubernetes removes it with the pod",
        "reservation_core/adapters/kubernetes/pods/secret_objects.py",
        '"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": str(spec.name), "uid": owner_uid}]',
        '"ownerReferences": []',
        (f"{OF_KUBERNETES}::test_a_pod_names_its_secret_and_the_secret_belongs_to_it",),
    ),
)
