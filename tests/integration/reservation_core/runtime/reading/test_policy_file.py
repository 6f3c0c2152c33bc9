"""The policy file: what it may say, how it is refused, and when it is taken over."""

from datetime import timedelta
from pathlib import Path

import pytest

from reservation_core.domain.policy.limits import UNLIMITED, Relaxation, Rules
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.runtime.reading.policy_file import parse, take_over
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import Runtime

EXAMPLE = """
[default]
max_gpus = 8
max_duration = "P7D"
relaxed_if_starts_within = [{ within = "PT2H", lifts = ["max_gpus"] }]

[gpu_type.h100]
max_gpus = 4
cooldown = 3600

[project.vision]
max_gpu_hours_per_week = 500.5
[project.vision.gpu_type.h100]
max_gpus = 6

[user."ann@lab.org"]
max_duration = "unlimited"
booking_required = false
[user."ann@lab.org".gpu_type.h100]
max_gpus = 6
[user.bob.gpu_type."a100-80gb"]
max_gpus = 0
"""


def test_what_it_says() -> None:
    found = {rule.scope: rule.rules for rule in parse(EXAMPLE.encode(), "policy.toml")}
    assert found == {
        Scope(): Rules(
            max_gpus=8,
            max_duration=timedelta(days=7),
            relaxed_if_starts_within=(Relaxation(timedelta(hours=2), frozenset({RuleName.MAX_GPUS})),),
        ),
        Scope(gpu_type="h100"): Rules(max_gpus=4, cooldown=timedelta(hours=1)),
        Scope(project="vision"): Rules(max_gpu_hours_per_week=500.5),
        Scope(project="vision", gpu_type="h100"): Rules(max_gpus=6),
        Scope(user="ann@lab.org"): Rules(max_duration=UNLIMITED, booking_required=False),
        Scope(user="ann@lab.org", gpu_type="h100"): Rules(max_gpus=6),
        Scope(user="bob", gpu_type="a100-80gb"): Rules(max_gpus=0),
    }
    assert parse(b"", "policy.toml") == []


def test_the_guides_examples_can_be_read() -> None:
    guide = (Path(__file__).parents[5] / "docs/guides/policy.md").read_text(encoding="utf-8")
    examples = [part.split("```")[0] for part in guide.split("```toml\n")[1:]]
    rules = [len(parse(example.encode(), "docs/guides/policy.md")) for example in examples]
    assert len(rules) == 2
    assert (min(rules) >= 1, max(rules) >= 5) == (True, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[default]\nmax_gpu = 4", "default.max_gpu: unknown; the fields are max_gpus,"),
        ("[defaults]\nmax_gpus = 4", "defaults: unknown; there are default, user, project and gpu_type."),
        ("default = 4", "default: must be a table"),
        ("[user]\nann = 4", "user.ann: must be a table"),
        ("[user.ann.gpu_type]\nh100 = 4", "user.ann.gpu_type.h100: must be a table"),
        ("[user.ann.gpu_type.h100]\nmax_gpus = '4'", "user.ann.gpu_type.h100.max_gpus:"),
        ("[user.'Ann Lee']\nmax_gpus = 4", "user.Ann Lee: no user can have this name."),
        ("[gpu_type.H100]\nmax_gpus = 4", "gpu_type.H100: no gpu_type can have this name."),
        ("[default]\nmax_duration = '7 days'", "default.max_duration:"),
        ("[default]\norder = 'size'", "default.order:"),
        ("[user.ann]\norder = 'area'", "user.ann.order: set it for default or for a project;"),
        ("[project.vision.gpu_type.h100]\norder = 'area'", "project.vision.gpu_type.h100.order: set it for default"),
        ("[default]\nmax_gpus = 1\nmax_gpus = 2", "not TOML"),
        ("\xff", "not TOML"),
    ],
)
def test_what_no_policy_can_say_is_refused_by_its_key(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=r"^policy\.toml: ") as refused:
        parse(text.encode("latin-1"), "policy.toml")
    assert said in str(refused.value)


async def kept(runtime: Runtime) -> dict[str, tuple[object, bool]]:
    """The rules by scope, and whether the file says them."""
    async with runtime.uow() as uow:
        rules = await uow.policies.rules()
    return {str(rule.rule.scope): (rule.rule.rules.max_gpus, rule.from_file) for rule in rules}


async def changes(runtime: Runtime) -> int:
    async with runtime.uow() as uow:
        return (await uow.policies.current()).revision


async def test_it_is_taken_over_when_it_has_changed(runtime: Runtime, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[default]\nmax_gpus = 8\n[user.ann]\nmax_gpus = 2\n")
    await take_over(runtime, file)
    assert await kept(runtime) == {"default": (8, True), "user:ann": (2, True)}
    # What an administrator sets stays for as long as the file stays as it is.
    async with runtime.uow() as uow:
        now = runtime.clock.now()
        await uow.policies.replace_rule(Scope(), Rules(max_gpus=3), by="root", from_file=False, now=now)
        await uow.policies.replace_rule(Scope(user="bob"), Rules(max_gpus=1), by="root", from_file=False, now=now)
    before = await changes(runtime)
    await take_over(runtime, file)
    assert await changes(runtime) == before
    # Another file: what it names is as it says, what the last one named and it does not is dropped, the rest stays.
    file.write_text("[default]\nmax_gpus = 9\n")
    await take_over(runtime, file)
    assert await kept(runtime) == {"default": (9, True), "user:bob": (1, False)}
    async with runtime.uow() as uow:
        assert (await uow.policies.lock_rule(Scope())).changed_by == "policy file"  # type: ignore[union-attr]


async def test_a_file_that_is_not_there_is_told(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"GPU_DEV_POLICY_FILE: .*nothing\.toml can't be read"):
        await take_over(runtime, tmp_path / "nothing.toml")
    await take_over(runtime, None)
    assert await kept(runtime) == {}
