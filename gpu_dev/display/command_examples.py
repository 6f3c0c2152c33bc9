"""The help of each command: two examples, and paragraphs as wide as the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

EXAMPLES: Mapping[str, tuple[str, str]] = {
    "status": ("gpu-dev", "gpu-dev status -o json"),
    "run": ("gpu-dev run --gpus 1 --for 1h -- python train.py", "gpu-dev run --again job-7f3k9q2m --gpus 2"),
    "submit": (
        "gpu-dev submit --gpus 4 --type h100 --for 2d --name big -- python train.py --epochs 90",
        "gpu-dev submit --gpus 1 --for 1h --after ok:train -- python evaluate.py",
    ),
    "list": ("gpu-dev list --status running", "gpu-dev list --all --watch"),
    "show": ("gpu-dev show job-7f3k9q2m", "gpu-dev show train -o json"),
    "explain": ("gpu-dev explain job-7f3k9q2m", "gpu-dev explain --gpus 4 --type h100 --for 8h"),
    "simulate": (
        "gpu-dev simulate --history 90d --add-nodes 2 --type h100",
        "gpu-dev simulate --trace jobs.csv --gpus 24 --node-size 8 --order area",
    ),
    "logs": ("gpu-dev logs job-7f3k9q2m", "gpu-dev logs train --follow"),
    "metrics": ("gpu-dev metrics job-7f3k9q2m", "gpu-dev metrics train --last 2h --step 5m -o csv"),
    "events": ("gpu-dev events job-7f3k9q2m", "gpu-dev events train --follow"),
    "extend": ("gpu-dev extend job-7f3k9q2m --by 2h", "gpu-dev extend train --by 90m"),
    "keep": ("gpu-dev keep job-7f3k9q2m", "gpu-dev keep notebook"),
    "fetch": ("gpu-dev fetch job-7f3k9q2m", "gpu-dev fetch train --to results"),
    "cancel": ("gpu-dev cancel job-7f3k9q2m", "gpu-dev cancel train evaluate"),
    "dev": (
        "gpu-dev dev --gpus 2 --for 4h",
        "gpu-dev dev --gpus 1 --type h100 --for 2h --image registry.example/pytorch:2",
    ),
    "reserve": ("gpu-dev reserve --gpus 2 --for 4h", "gpu-dev reserve --gpus 1 --for 2h --name notebook"),
    "shell": ("gpu-dev shell", "gpu-dev shell notebook"),
    "exec": ("gpu-dev exec job-7f3k9q2m -- nvidia-smi", "gpu-dev exec --tty notebook -- python"),
    "attach": ("gpu-dev attach", "gpu-dev attach job-7f3k9q2m --list"),
    "cp": ("gpu-dev cp train.py notebook:", "gpu-dev cp job-7f3k9q2m:results ./results"),
    "forward": ("gpu-dev forward notebook 8080:8888", "gpu-dev forward job-7f3k9q2m 0:6006 5678"),
    "open": ("gpu-dev open notebook", "gpu-dev open job-7f3k9q2m 6006"),
    "ssh": ("gpu-dev ssh notebook", "gpu-dev ssh job-7f3k9q2m -- nvidia-smi -L"),
    "config-ssh": ("gpu-dev config-ssh", "gpu-dev config-ssh --remove"),
    "gpus": ("gpu-dev gpus", "gpu-dev gpus --type h100 --each"),
    "top": ("gpu-dev top", "gpu-dev top --once --sort power --filter 'h100 held'"),
    "nodes": ("gpu-dev nodes", "gpu-dev nodes --watch"),
    "nodes cordon": (
        "gpu-dev nodes cordon gpu-07 --reason 'new driver on Friday'",
        "gpu-dev nodes cordon gpu-07 --reason 'noisy fan'",
    ),
    "nodes quarantine": (
        "gpu-dev nodes quarantine gpu-07/3 --reason 'Xid 79 again'",
        "gpu-dev nodes quarantine gpu-r07-n03/0",
    ),
    "nodes release": ("gpu-dev nodes release gpu-07/3", "gpu-dev nodes release gpu-r07-n03/0"),
    "nodes uncordon": ("gpu-dev nodes uncordon gpu-07", "gpu-dev nodes uncordon gpu-r07-n03"),
    "nodes fence": (
        "gpu-dev nodes fence gpu-07 --reason 'power supply failed'",
        "gpu-dev nodes fence gpu-07 --reason 'taken out of the rack' --yes",
    ),
    "nodes unfence": ("gpu-dev nodes unfence gpu-07", "gpu-dev nodes unfence gpu-r07-n03"),
    "queue": ("gpu-dev queue", "gpu-dev queue --limit 500 --watch"),
    "queue dlq": ("gpu-dev queue dlq", "gpu-dev queue dlq --redrive gpu_jobs/17"),
    "book create": (
        'gpu-dev book create --gpus 2 --start "tomorrow 9am" --for 4h',
        'gpu-dev book create --gpus 8 --type h100 --start "mon 9-17" --title "demo for the board"',
    ),
    "book list": ("gpu-dev book list", "gpu-dev book list --all --from today --to fri"),
    "book show": ("gpu-dev book show bkg-552v3yxa", 'gpu-dev book show "demo for the board"'),
    "book extend": ("gpu-dev book extend bkg-552v3yxa --by 1h", "gpu-dev book extend bkg-552v3yxa --by 1d --dry-run"),
    "book shorten": ("gpu-dev book shorten bkg-552v3yxa --by 1h", "gpu-dev book shorten 552v3yxa --by 30m"),
    "book move": (
        'gpu-dev book move bkg-552v3yxa --start "wed 9am"',
        "gpu-dev book move bkg-552v3yxa --node gpu-07 --dry-run",
    ),
    "book cancel": ("gpu-dev book cancel bkg-552v3yxa", "gpu-dev book cancel bkg-552v3yxa --following"),
    "book slots": ("gpu-dev book slots --gpus 4 --for 8h", "gpu-dev book slots --gpus 8 --for 2d --type h100 --to fri"),
    "book waitlist": ("gpu-dev book waitlist", "gpu-dev book waitlist --all"),
    "book accept": ("gpu-dev book accept bkg-552v3yxa", "gpu-dev book accept 552v3yxa"),
    "book decline": ("gpu-dev book decline bkg-552v3yxa", "gpu-dev book decline 552v3yxa"),
    "book feed": ("gpu-dev book feed", "gpu-dev book feed --drop"),
    "avail": ("gpu-dev avail --type h100", "gpu-dev avail --from mon --to sat --step 4h"),
    "usage": ("gpu-dev usage", "gpu-dev usage --by project --from 2026-01-01 -o csv"),
    "notify targets": ("gpu-dev notify targets", "gpu-dev notify targets -o json"),
    "notify add": (
        "gpu-dev notify add email ann@example.org",
        "gpu-dev notify add slack https://hooks.slack.com/services/T0/B0/key --name team",
    ),
    "notify verify": ("gpu-dev notify verify ntg-4c8d2k7m 482913", "gpu-dev notify verify ntg-4c8d2k7m 073325"),
    "notify test": ("gpu-dev notify test ntg-4c8d2k7m", "gpu-dev notify test ntg-9x3b6p5w"),
    "notify remove": ("gpu-dev notify remove ntg-4c8d2k7m", "gpu-dev notify remove ntg-4c8d2k7m ntg-9x3b6p5w"),
    "notify show": ("gpu-dev notify show", "gpu-dev notify show -o json"),
    "notify set": ("gpu-dev notify set ended=email failed=email,slack", "gpu-dev notify set started=none"),
    "login": ("gpu-dev login https://gpus.example.org", "gpu-dev login https://gpus.example.org --kubernetes"),
    "logout": ("gpu-dev logout", "gpu-dev --server https://gpus.example.org logout"),
    "share": ("gpu-dev share train --with bob", "gpu-dev share job-7f3k9q2m --with ann --with bob"),
    "unshare": ("gpu-dev unshare train --with bob", "gpu-dev unshare job-7f3k9q2m --with ann --with bob"),
    "keys list": ("gpu-dev keys list", "gpu-dev keys list -o json"),
    "keys add": ("gpu-dev keys add", "gpu-dev keys add ~/.ssh/id_ed25519.pub --name laptop"),
    "keys import": ("gpu-dev keys import github:ada", "gpu-dev keys import agent"),
    "keys remove": ("gpu-dev keys remove laptop", "gpu-dev keys remove key-7f3k9q2m key-4c8d2k7m"),
    "disk create": ("gpu-dev disk create data --size 100Gi", "gpu-dev disk create home --size 20Gi"),
    "disk list": ("gpu-dev disk list --deleted", "gpu-dev disk list --user alice"),
    "disk show": ("gpu-dev disk show data", "gpu-dev disk show data -o json"),
    "disk resize": ("gpu-dev disk resize data 200Gi", "gpu-dev disk resize home 1Ti"),
    "disk rename": ("gpu-dev disk rename data imagenet", "gpu-dev disk rename old-home home"),
    "disk delete": ("gpu-dev disk delete data", "gpu-dev disk delete data scratch"),
    "disk restore": ("gpu-dev disk restore data", "gpu-dev disk restore home"),
    "disk snapshot": ("gpu-dev disk snapshot data", "gpu-dev disk snapshot data --name before-cleaning"),
    "disk delete-snapshot": (
        "gpu-dev disk delete-snapshot data before-cleaning",
        "gpu-dev disk delete-snapshot data monday tuesday --yes",
    ),
    "disk clone": (
        "gpu-dev disk clone data data-2",
        "gpu-dev disk clone data old-data --snapshot before-cleaning --size 200Gi",
    ),
    "disk give": ("gpu-dev disk give data --to bob", "gpu-dev disk give home --user alice --to bob --as home-of-alice"),
    "secret set": ("gpu-dev secret set HF_TOKEN", "gpu-dev secret set deploy-key --from-file ~/.ssh/deploy_key"),
    "secret list": ("gpu-dev secret list", "gpu-dev secret list -o json"),
    "secret delete": ("gpu-dev secret delete HF_TOKEN", "gpu-dev secret delete HF_TOKEN deploy-key"),
    "tokens list": ("gpu-dev tokens list", "gpu-dev tokens list -o json"),
    "tokens create": (
        "gpu-dev tokens create --name laptop --expires-in 30d",
        "gpu-dev tokens create --name nightly --scope submit --gpu-hours 40",
    ),
    "tokens renew": ("gpu-dev tokens renew", "gpu-dev --token-file nightly.token tokens renew"),
    "tokens revoke": ("gpu-dev tokens revoke tok-4c8d2k7m", "gpu-dev tokens revoke --all --user ann"),
    "users list": ("gpu-dev users list", "gpu-dev users list -o json"),
    "users add": ("gpu-dev users add ann", "gpu-dev users add ci-bot --role service"),
    "users disable": ("gpu-dev users disable ann", "gpu-dev users disable ann --end --yes"),
    "users enable": ("gpu-dev users enable ann", "gpu-dev users enable ci-bot"),
    "users me": ("gpu-dev users me", "gpu-dev users me -o json"),
    "projects list": ("gpu-dev projects list", "gpu-dev projects list -o json"),
    "projects create": (
        "gpu-dev projects create vision --member ann --member bob",
        'gpu-dev projects create speech --title "Speech recognition"',
    ),
    "projects end": ("gpu-dev projects end vision", "gpu-dev projects end vision --yes"),
    "projects add": ("gpu-dev projects add vision ann", "gpu-dev projects add vision ann bob"),
    "projects remove-member": (
        "gpu-dev projects remove-member vision ann",
        "gpu-dev projects remove-member vision ann bob",
    ),
    "policy list": ("gpu-dev policy list", "gpu-dev policy list -o yaml"),
    "policy show": ("gpu-dev policy show default", "gpu-dev policy show user:ann"),
    "policy set": (
        "gpu-dev policy set default max_gpus=8 max_duration=7d",
        "gpu-dev policy set user:ann,gpu_type:h100 max_gpus=2 --dry-run",
    ),
    "policy remove": ("gpu-dev policy remove user:ann", "gpu-dev policy remove user:ann,gpu_type:h100"),
    "maintenance plan": (
        'gpu-dev maintenance plan gpu-07 --start "sat 8am" --for 4h --reason "new driver" --dry-run',
        'gpu-dev maintenance plan gpu-07:0,2 --for 2d --reason "GPUs are replaced"',
    ),
    "maintenance list": ("gpu-dev maintenance list", "gpu-dev maintenance list -o json"),
    "maintenance cancel": (
        "gpu-dev maintenance cancel mnt-4c8d2k7m",
        "gpu-dev maintenance cancel mnt-4c8d2k7m mnt-9x3b6p5w",
    ),
    "audit": ("gpu-dev audit --subject job-7f3k9q2m", "gpu-dev audit --actor ann --from mon"),
    "audit export": (
        "gpu-dev audit export --from 2026-01-01 --to 2026-02-01 --file january.jsonl",
        "gpu-dev audit export > all.jsonl",
    ),
    "audit verify": ("gpu-dev audit verify", "gpu-dev audit verify january.jsonl february.jsonl"),
    "pods": ("gpu-dev pods", "gpu-dev pods --watch"),
    "pods end": ("gpu-dev pods end gpu-jobs/train-0", "gpu-dev pods end gpu-jobs/train-0 --yes"),
    "up": ("gpu-dev up", "GPU_DEV_LOCAL_GPUS=h100:4 gpu-dev up"),
    "db migrate": ("gpu-dev db migrate", "GPU_DEV_DATABASE_URL=postgresql://db/gpu_dev gpu-dev db migrate"),
    "db status": ("gpu-dev db status", "GPU_DEV_DATABASE_URL=postgresql://db/gpu_dev gpu-dev db status"),
    "psql": ("gpu-dev psql", "gpu-dev psql -c 'SELECT count(*) FROM reservations'"),
    "slurm install": ("gpu-dev slurm install", "gpu-dev slurm install ~/.local/bin"),
    "slurm remove": ("gpu-dev slurm remove", "gpu-dev slurm remove ~/.local/bin"),
    "completion": ("gpu-dev completion bash", "gpu-dev completion zsh"),
}


def add_examples(command: Any, path: str) -> None:
    """Put the examples at the end of the help of a command and of those below it, and join the lines of paragraphs.

    Typer keeps the line breaks of docstrings, which break sentences again at terminals narrower than the source.
    """
    for name, group in _below(command, path):
        if _only_has_others(group):
            first = [EXAMPLES[f"{name} {below}"][0] for below in [*group.commands][:2]]
            group.epilog = "\n\n".join(["Examples:", *first])
    for name, found in with_paths(command, path):
        found.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (found.help or "").split("\n\n"))
        found.epilog = "\n\n".join(["Examples:", *EXAMPLES[name], *filter(None, [found.epilog])])


def with_paths(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The commands that do something, with their names: `nodes`, `nodes cordon`."""
    return ((name, found) for name, found in _below(command, path) if not _only_has_others(found))


def _below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A command and all below it, with their names."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, f"{path} {name}")


def _only_has_others(command: Any) -> bool:
    """Whether a command does nothing itself."""
    return bool(getattr(command, "commands", {})) and not getattr(command, "invoke_without_command", False)
