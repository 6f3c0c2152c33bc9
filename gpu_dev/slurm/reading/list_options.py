"""Slurm's options of `squeue`, `scancel` and `sinfo`, as `options` has those of `sbatch`."""

from gpu_dev.slurm.reading.options import Option, Takes, passed_over, refused, table_of

_ALWAYS = (
    Option("help", "shows the options", takes=Takes.NOTHING),
    Option("usage", "shows the options", takes=Takes.NOTHING),
    Option("version", "shows the version", takes=Takes.NOTHING, letter="V"),
)
_NO_EFFECT = "It changes nothing here."
_BY_TYPE = "There are no partitions here. See the types of GPUs with gpu-dev gpus."
_ONE_SERVER = "There is one server. Choose it with the variable GPU_DEV_SERVER."
_NO_NODES = "Jobs are not chosen by their nodes. See gpu-dev gpus --each."
_NO_QOS = "Jobs have no quality of service here. Remove this option."

SQUEUE = table_of(
    _ALWAYS,
    (
        Option("jobs", "only the jobs with these ids; those that have ended with `-t all`", letter="j"),
        Option("me", "only your jobs", takes=Takes.NOTHING),
        Option("user", "only jobs of these users", letter="u"),
        Option("name", "only jobs with these names", letter="n"),
        Option("account", "only jobs of these projects", letter="A"),
        Option("states", "only jobs in these states: PD, CF, R, CG, CD, F, CA, TO, or all; else in PD, CF, R and CG",
               letter="t"),
        Option("format", "the columns, of `%i %j %u %t %T %M %l %L %D %R %r %N %S %e %V %Q %P %a %b`", letter="o"),
        Option("long", "more columns", takes=Takes.NOTHING, letter="l"),
        Option("start", "when jobs start", takes=Takes.NOTHING),
        Option("noheader", "no titles", takes=Takes.NOTHING, letter="h"),
    ),
    passed_over(_NO_EFFECT, "all", "array", "array-unique", "hide", "verbose", "noconvert", "local", "federation",
                takes=Takes.NOTHING, all="a", array="r", verbose="v"),
    refused("Choose the columns with --format.", "Format", Format="O"),
    refused("For other programs use gpu-dev list -o json.", "json", "yaml", takes=Takes.OPTIONAL),
    refused("Show it again and again with watch squeue, or gpu-dev list --watch.", "iterate", iterate="i"),
    refused("Waiting jobs are in the order of the queue. Sort the lines with sort.", "sort", sort="S"),
    refused(_BY_TYPE, "partition", partition="p"),
    refused(_ONE_SERVER, "clusters", clusters="M"),
    refused(_NO_NODES, "nodelist", nodelist="w"),
    refused(_NO_QOS, "qos", "licenses", qos="q", licenses="L"),
    refused("See the jobs of a booking with gpu-dev book show ID.", "reservation", reservation="R"),
    refused("A job has no steps. See its programs with gpu-dev attach ID --list.", "steps", takes=Takes.OPTIONAL,
            steps="s"),
    refused("Choose the columns with --format.", "priority", takes=Takes.NOTHING, priority="P"),
)  # fmt: skip

SCANCEL = table_of(
    _ALWAYS,
    (
        Option("me", "your open jobs", takes=Takes.NOTHING),
        Option("user", "the open jobs of this user", letter="u"),
        Option("name", "only jobs with this name", letter="n"),
        Option("jobname", "only jobs with this name"),
        Option("state", "only jobs in this state: PENDING, RUNNING", letter="t"),
        Option("quiet", "no warnings", takes=Takes.NOTHING, letter="Q"),
    ),
    passed_over(_NO_EFFECT, "full", "batch", "verbose", "hurry", "ctld", takes=Takes.NOTHING, full="f", batch="b",
                verbose="v", hurry="H"),
    refused("Jobs get no signals but that of their end. Send one with gpu-dev exec ID -- pkill -USR1 python.", "signal",
            signal="s"),
    refused("Nothing is asked. Name the jobs.", "interactive", takes=Takes.NOTHING, interactive="i"),
    refused("Jobs are not chosen by their project. Name the jobs.", "account", "wckey", account="A"),
    refused(_BY_TYPE, "partition", partition="p"),
    refused(_ONE_SERVER, "clusters", clusters="M"),
    refused(_NO_NODES, "nodelist", nodelist="w"),
    refused(_NO_QOS, "qos", qos="q"),
    refused("See the jobs of a booking with gpu-dev book show ID, and name them.", "reservation", reservation="R"),
)  # fmt: skip

SINFO = table_of(
    _ALWAYS,
    (
        Option("format", "the columns, of `%P %a %l %D %t %T %N %n %G %A %F`", letter="o"),
        Option("Node", "a line for each node", takes=Takes.NOTHING, letter="N"),
        Option("summarize", "a line for each type of GPU", takes=Takes.NOTHING, letter="s"),
        Option("partition", "only GPUs of these types", letter="p"),
        Option("noheader", "no titles", takes=Takes.NOTHING, letter="h"),
    ),
    passed_over(_NO_EFFECT, "all", "verbose", "exact", "noconvert", "hide", "local", "federation", takes=Takes.NOTHING,
                all="a", verbose="v", exact="e"),
    refused("Choose the columns with --format.", "Format", Format="O"),
    refused("Choose the columns with --format.", "long", takes=Takes.NOTHING, long="l"),
    refused("For other programs use gpu-dev nodes -o json.", "json", "yaml", takes=Takes.OPTIONAL),
    refused("Show it again and again with watch sinfo, or gpu-dev nodes --watch.", "iterate", iterate="i"),
    refused("The lines are in the order of the types. Sort them with sort.", "sort", sort="S"),
    refused("See why nodes take no jobs with gpu-dev nodes.", "list-reasons", "dead", "responding",
            takes=Takes.NOTHING, list_reasons="R", dead="d", responding="r"),
    refused("See bookings with gpu-dev book list --all.", "reservation", takes=Takes.NOTHING, reservation="T"),
    refused("Find the line of a node with gpu-dev nodes.", "nodes", "states", nodes="n", states="t"),
    refused(_ONE_SERVER, "clusters", clusters="M"),
)  # fmt: skip
