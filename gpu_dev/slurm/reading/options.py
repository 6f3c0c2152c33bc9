"""Slurm's options of `sbatch` and `srun`: which have a meaning here, and what is said of the others.

`make reference` writes the page of them from this table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Takes(Enum):
    """Whether an option has a value."""

    NOTHING = auto()
    VALUE = auto()
    OPTIONAL = auto()
    """`--nice` or `--nice=50`, never `--nice 50`."""


class Treatment(Enum):
    """The effect of an option here."""

    HONOURED = "honoured"
    PASSED_OVER = "passed over"
    """The job is the same without it: a warning names it."""
    REFUSED = "refused"
    """Nothing is submitted."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `here` is its meaning here, or why it has none and what to do next."""

    name: str
    here: str
    treatment: Treatment = Treatment.HONOURED
    takes: Takes = Takes.VALUE
    letter: str = ""

    @property
    def flag(self) -> str:
        """The long form, as it is typed."""
        return f"--{self.name}"


def table_of(*groups: Iterable[Option]) -> Mapping[str, Option]:
    """Options by their long names; a later one replaces an earlier one of its name."""
    return {option.name: option for group in groups for option in group}


def passed_over(text: str, *names: str, takes: Takes = Takes.VALUE, **letters: str) -> list[Option]:
    """Options without effect, for one reason; `letters` are by names with `_` for `-`."""
    return [Option(name, text, Treatment.PASSED_OVER, takes, letters.get(name.replace("-", "_"), "")) for name in names]


def refused(text: str, *names: str, takes: Takes = Takes.VALUE, **letters: str) -> list[Option]:
    """Options that are refused, for one reason."""
    return [Option(name, text, Treatment.REFUSED, takes, letters.get(name.replace("-", "_"), "")) for name in names]


_HONOURED = (
    Option(
        "gpus",
        "`--gpus` and `--type`; with several nodes it is divided among them; without one of these the job has no GPU",
        letter="G",
    ),
    Option("gpus-per-node", "`--gpus` and `--type`"),
    Option("gpus-per-task", "`--gpus` and `--type`: there is one task on each node"),
    Option("gres", "`gpu:2` is `--gpus 2`, `gpu:h100:2` is `--type h100 --gpus 2`; all other resources are refused"),
    Option("cpus-per-task", "`--cpus`: there is one task on each node", letter="c"),
    Option("cpus-per-gpu", "`--cpus`, times the GPUs on each node"),
    Option("mem", "`--memory`: `64G` is `64Gi`, and a number alone MiB; 0 is refused"),
    Option("mem-per-gpu", "`--memory`, times the GPUs on each node"),
    Option("mem-per-cpu", "`--memory`, times the CPUs on each node (1 where none are named)"),
    Option("nodes", "`--nodes`; a range such as 2-4 is refused", letter="N"),
    Option("ntasks", "one for each node; more are refused", letter="n"),
    Option("ntasks-per-node", "1; more are refused"),
    Option(
        "time", "`--for`, in all of Slurm's forms; there has to be a limit, and 90 days are the longest", letter="t"
    ),
    Option("job-name", "`--name` (else the name of the script or the command)", letter="J"),
    Option("chdir", "`--working-dir` (else the current folder)", letter="D"),
    Option("export", "`--env` for each variable; `NONE` for none; `ALL` is refused"),
    Option("account", "`--project`", letter="A"),
    Option("reservation", "`--booking`: the id or the title of a booking of yours"),
    Option("priority", "`--priority`, from -100 to 100"),
    Option("nice", "`--priority`, lower by that number: 1 to 100, and 100 without a number", takes=Takes.OPTIONAL),
    Option(
        "dependency",
        "`--after`: `afterok`, `afterany`, `afternotok` and `after`, with ids; all have to come true. "
        "`after` waits for a start: if the other job is cancelled before, this one is, too (Slurm starts it)",
        letter="d",
    ),
    Option("requeue", "`--requeue`", takes=Takes.NOTHING),
    Option("signal", "`--signal`: as in `USR1@300`; `B:` before it is the same, and numbers of signals are refused"),
    Option("no-requeue", "the job runs once, as without it", takes=Takes.NOTHING),
    Option("begin", "`now`; all else is refused: book the time with `gpu-dev book create`", letter="b"),
    Option("quiet", "prints no warnings", takes=Takes.NOTHING, letter="Q"),
    Option("help", "shows the options", takes=Takes.NOTHING, letter="h"),
    Option("usage", "shows the options", takes=Takes.NOTHING),
    Option("version", "shows the version", takes=Takes.NOTHING, letter="V"),
)

_CPUS = "CPUs of a node are not told apart. Ask for a number of them with --cpus-per-task."
_NO_OUTPUT_FILE = "No file is written. The server keeps the output: gpu-dev logs ID."
_NOTIFIED = "Notifications are chosen once for all jobs: gpu-dev notify -h."
_NO_EFFECT = "It changes nothing of a job here."

_PASSED_OVER = (
    *passed_over(_CPUS, "mincpus", "cores-per-socket", "sockets-per-node", "threads-per-core", "extra-node-info",
                  "core-spec", "thread-spec", "ntasks-per-core", "ntasks-per-socket", extra_node_info="B",
                  core_spec="S"),
    *passed_over("Space for temporary files is not counted.", "tmp"),
    *passed_over(_NO_OUTPUT_FILE, "output", "error", "open-mode", output="o", error="e"),
    *passed_over(_NOTIFIED, "mail-type", "mail-user"),
    *passed_over("Rules are those of you, your project and the type of GPU: gpu-dev policy list.", "qos", qos="q"),
    *passed_over("A job gets its GPUs for the whole of its time.", "time-min"),
    *passed_over("GPUs are never shared here.", "oversubscribe", "overcommit", takes=Takes.NOTHING,
                  oversubscribe="s", overcommit="O"),
    *passed_over("All nodes start together here.", "wait-all-nodes"),
    *passed_over(_NO_EFFECT, "acctg-freq", "comment", "wckey", "profile", "extra", "cpu-freq", "hint", "mem-bind",
                  "gpu-bind", "tres-bind", "distribution", "propagate", "mcs-label", "delay-boot",
                  distribution="m"),
    *passed_over(_NO_EFFECT, "verbose", "contiguous", "spread-job", "use-min-nodes", "oom-kill-step",
                  takes=Takes.NOTHING, verbose="v"),
    *passed_over(_NO_EFFECT, "kill-on-invalid-dep", "gres-flags", "threads"),
)  # fmt: skip

_BY_TYPE = "Choose GPUs by their type, as in --gpus=h100:2, and remove this option."

_REFUSED = (
    *refused(f"There are no partitions here. {_BY_TYPE}", "partition", partition="p"),
    *refused(f"Nodes have no features here. {_BY_TYPE}", "constraint", "cluster-constraint", "prefer",
              constraint="C"),
    *refused("The planner chooses the nodes. Remove this option.", "nodelist", "nodefile", "exclude", "switches",
              "segment", nodelist="w", nodefile="F", exclude="x"),
    *refused("Whole nodes can't be asked for. Ask for all GPUs of a node.", "exclusive", takes=Takes.OPTIONAL),
    *refused("Jobs can't be held. Submit the job later, or book a time: gpu-dev book create --help.", "hold",
              takes=Takes.NOTHING, hold="H"),
    *refused("A job has no deadline to start by. See when it would start with sbatch --test-only.", "deadline"),
    *refused("Jobs read no file as input. Redirect it in the script.", "input", input="i"),
    *refused("One process starts on each node. Start more in the script, as with torchrun.", "ntasks-per-gpu",
              "tres-per-task", "gpus-per-socket"),
    *refused("There is one server. Choose it with the variable GPU_DEV_SERVER.", "clusters", clusters="M"),
    *refused("Containers are chosen with gpu-dev submit --image.", "container", "container-id"),
    *refused("Your shell's environment is not taken along. Name variables, as in --export=NAME,OTHER=value.",
              "export-file"),
    *refused("Your shell's environment is not taken along. Name variables, as in --export=NAME,OTHER=value.",
              "get-user-env", takes=Takes.OPTIONAL),
    *refused("Jobs run for the user of your token. Ask with a token of that user.", "uid", "gid"),
    *refused("A job ends with its nodes. Remove this option.", "no-kill", takes=Takes.OPTIONAL, no_kill="k"),
    *refused("GPUs run at the clock rate that administrators set. Remove this option.", "gpu-freq"),
    *refused("Nodes are not restarted for a job. Remove this option.", "reboot", takes=Takes.NOTHING),
    *refused("This resource does not exist here. Remove this option.", "licenses", "bb", "bbf", "network", "batch",
              "power", "resv-ports", licenses="L"),
)  # fmt: skip

_OF_SBATCH = (
    Option("array", "`--array`: `0-N` and `0-N%M`; other forms are refused. SLURM_ARRAY_TASK_ID is set", letter="a"),
    Option("wrap", "the command, run by sh, instead of a script"),
    Option("parsable", "prints only the id", takes=Takes.NOTHING),
    Option("test-only", "`--test-only`: shows when the job would start, and submits nothing", takes=Takes.NOTHING),
    Option("wait", "`--wait`; ends with the exit code of the job", takes=Takes.NOTHING, letter="W"),
    *passed_over("Only #SBATCH lines are read.", "ignore-pbs", takes=Takes.NOTHING),
)

_OF_SRUN = (
    Option("test-only", "`--test-only`: shows when the job would start, and submits nothing", takes=Takes.NOTHING),
    Option("pty", "`--tty`", takes=Takes.NOTHING),
    *passed_over(_NO_EFFECT, "unbuffered", "exact", "overlap", takes=Takes.NOTHING, unbuffered="u"),
    *passed_over("One node's end ends the job.", "kill-on-bad-exit", takes=Takes.OPTIONAL, kill_on_bad_exit="K"),
    *passed_over(_NO_EFFECT, "mpi", "wait", "slurmd-debug", "bcast", "msg-timeout", wait="W"),
    *passed_over(_NO_EFFECT, "preserve-env", "disable-status", takes=Takes.NOTHING, preserve_env="E",
                  disable_status="X"),
    *refused("A job has no steps. Enter it with gpu-dev shell ID, or run a command in it with gpu-dev exec ID.",
              "jobid", "relative", relative="r"),
    *refused("Output has no labels here. See the output of one node with gpu-dev logs ID --rank 1.", "label",
              takes=Takes.NOTHING, label="l"),
    *refused("Jobs wait in the queue. See first when this one would start with srun --test-only.", "immediate",
              takes=Takes.OPTIONAL, immediate="I"),
    *refused("One process starts on each node. Start others in a script.", "multi-prog", "no-allocate",
              takes=Takes.NOTHING, no_allocate="Z"),
    *refused("A command in the foreground has no elements. Submit a script with sbatch.", "array", array="a"),
    *refused("Nothing runs before or after the command. Write it into a script.", "prolog", "epilog", "task-prolog",
              "task-epilog"),
)  # fmt: skip

SBATCH = table_of(_HONOURED, _PASSED_OVER, _REFUSED, _OF_SBATCH)
SRUN = table_of(_HONOURED, _PASSED_OVER, _REFUSED, _OF_SRUN)
