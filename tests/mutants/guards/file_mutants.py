"""Guards of files of jobs: whose they are, where they may lie, and when they are removed."""

from tests.mutants.mutant import Mutant

FOLDERS = "reservation_core/domain/sync/folders.py"
STORE_SQL = "reservation_core/adapters/postgres/jobs/job_files.sql"
USECASE = "reservation_core/usecases/jobs/job_files.py"

OF_FOLDERS = "tests/unit/reservation_core/domain/sync/test_folders.py"
OF_REST = "tests/integration/api_service/jobs/asks/test_job_files.py"
OF_OLD = "tests/integration/reservation_core/usecases/history/test_old_files.py"
OF_SCANS = "tests/unit/gpu_dev/sync/test_scanning.py"
OF_CARRIED = "tests/unit/gpu_dev/sync/test_carried.py"
OF_PODS = "tests/unit/reservation_core/adapters/kubernetes/pods/test_added_programs.py"

FILES_OF_JOBS = (
    Mutant(
        "a pod shows the token of its files",
        "The token that passes a job's files is in a Secret, and never in a pod's specification",
        "reservation_core/adapters/kubernetes/pods/built_pods.py",
        "        if name not in secret:",
        "        if True:",
        (f"{OF_PODS}::test_the_token_is_in_the_secret_alone",),
    ),
    Mutant(
        "a command in a container gets no signals",
        "The first process of a container passes on the signals that come from outside",
        "gpu_dev/sync/inside.py",
        "(os.getpid() == _FIRST or came.si_pid != os.getppid())",
        "came.si_pid != os.getppid()",
        (f"{OF_CARRIED}::test_signals_from_outside_come_to_the_command_once",),
    ),
    Mutant(
        "a container is not ended while files come",
        "A job that is ended while its files come ends at once",
        "gpu_dev/sync/inside.py",
        "    if os.getpid() == _FIRST:  #",
        "    if False:  #",
        (f"{OF_CARRIED}::test_a_job_that_is_ended_while_its_files_come_ends_at_once",),
    ),
    Mutant(
        "files are taken that can not come",
        "Files are refused on Kubernetes unless the settings say how they come",
        "api_service/requests/workloads.py",
        "            if missing := [name for name, value in unset.items() if value is None]:",
        "            if missing := list[str]():",
        ("tests/unit/api_service/requests/test_workloads.py",),
    ),
    Mutant(
        "a digest gives anybody the content",
        "Chunks are kept by user: a user who only knows a digest has to send the content",
        STORE_SQL,
        "AS is_unused FROM sent_chunks WHERE user_id = :user_id AND",
        "AS is_unused FROM sent_chunks WHERE :user_id = :user_id AND",
        (f"{OF_REST}::test_a_digest_alone_gives_nobody_the_content",),
    ),
    Mutant(
        "anybody reads a job's files",
        "Files of a job are for its owner alone, also not for administrators",
        USECASE,
        "if job is None or job.user_id != principal.user_id:",
        "if job is None:",
        (f"{OF_REST}::test_a_digest_alone_gives_nobody_the_content",),
    ),
    Mutant(
        "a link leaves its folder",
        "No link of a folder that was sent leads out of it",
        FOLDERS,
        'if ups > path.count("/") or',
        "if",
        (OF_FOLDERS,),
    ),
    Mutant(
        "links lead out together",
        "No link has `..` after another name, which may be a link itself",
        FOLDERS,
        " or _UP in parts[ups:]:",
        ":",
        (OF_FOLDERS,),
    ),
    Mutant(
        "a file lies behind a link",
        "Nothing that is sent lies behind a link",
        FOLDERS,
        "            if above in leaves:",
        "            if False:",
        (OF_FOLDERS,),
    ),
    Mutant(
        "a user's bytes have no bound",
        "A user's files take no more room than allowed, also when many requests come at once",
        USECASE,
        "    if taken.own > bounds.user:",
        "    if False:",
        (f"{OF_REST}::test_bounds_hold_also_for_many_at_once",),
    ),
    Mutant(
        "the folder of a waiting job is removed",
        "No folder is removed that an open job begins with",
        STORE_SQL,
        "WHERE r.user_id = f.user_id AND r.finished_at IS NULL",
        "WHERE false",
        (f"{OF_OLD}::test_what_an_open_job_begins_with_stays",),
    ),
    Mutant(
        "an old look hides a change",
        "A file that changed shortly before the last look is read again",
        "gpu_dev/sync/scanning.py",
        " and max(found.st_mtime_ns, found.st_ctime_ns) < known.began - _CLOCK_STEP_NS:",
        ":",
        (f"{OF_SCANS}::test_a_file_that_was_just_changed_is_read_again",),
    ),
    Mutant(
        "a link in the way is followed",
        "Files that come back replace links, and never write through them",
        "gpu_dev/sync/folder_files.py",
        "        if stat.S_ISDIR(path.lstat().st_mode):",
        "        if path.is_dir():",
        (f"{OF_SCANS}::test_links_in_the_way_are_replaced_and_not_followed",),
    ),
    Mutant(
        "a job keeps what nobody asked for",
        "A job keeps nothing outside the paths that its owner asked for, and nothing of Git",
        USECASE,
        "    if (fault := fault_of_kept(job.workload.sync.fetch, entries_in(content))) is not None:",
        "    if (fault := fault_of_kept((), ())) is not None:",
        (f"{OF_REST}::test_a_job_keeps_nothing_that_was_not_asked_for",),
    ),
    Mutant(
        "chunks grow old while their folder is used",
        "Using a folder renews its chunks",
        "reservation_core/adapters/postgres/jobs/job_files.py",
        "        if row.is_noted:",
        "        if False:",
        (f"{OF_OLD}::test_a_folder_that_is_used_again_keeps_its_chunks",),
    ),
)
