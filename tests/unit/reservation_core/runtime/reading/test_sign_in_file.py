"""The sign-in file: what it says, and what is wrong with it, named."""

from pathlib import Path

import pydantic
import pytest

from reservation_core.domain.statuses import Role, SignInMethod
from reservation_core.runtime.reading import sign_in_file
from reservation_core.runtime.reading.sign_in_file import parse, read_sign_in_file
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.error import SettingsError

ISSUER = '[[issuer]]\nurl = "https://issuer.example"\naudiences = ["us"]\n'
OIDC = '[[oidc]]\nissuer = "https://issuer.example"\n'


def _example() -> bytes:
    said = sign_in_file.__doc__ or ""
    return "\n".join(line.removeprefix("    ") for line in said.splitlines()[2:]).encode()


def test_the_example_is_read() -> None:
    found = parse(_example(), "example")
    assert found.methods == set(SignInMethod)
    assert [rule.user for rule in found.rules] == ["root", "{email_name}", "ci"]
    assert (found.rules[0].role, found.rules[1].create) == (Role.ADMIN, True)
    assert found.issuers[0].algorithms == {"RS256", "ES256"}


def test_what_guides_show_is_read() -> None:
    guide = (Path(__file__).parents[5] / "docs" / "guides" / "signing-in.md").read_text()
    shown = [block.split("```")[0] for block in guide.split("```toml\n")[1:]]
    assert shown
    for block in shown:
        assert parse(block.encode(), "guide").rules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "not TOML"),
        ("[[password]]", "password: is not known here; leave it out"),
        (ISSUER + ISSUER, "stands twice"),
        (ISSUER.replace("https", "http"), "https address"),
        (ISSUER.replace('["us"]', "[]"), "issuer.0.audiences"),
        (ISSUER + 'algorithms = ["HS256"]', "must be some of"),
        (ISSUER + 'algorithms = ["none"]', "must be some of"),
        (ISSUER + 'jwks_url = "http://x/keys"', "https address"),
        (OIDC + 'email = "a@b.c"\nuser = "a"', "not among the"),
        (ISSUER + OIDC + 'user = "a"', "sub, email or claims"),
        (ISSUER + OIDC + 'email = "*"\nuser = "{email_name}"', "one domain"),
        (ISSUER + OIDC + 'email = "a@b.c"\nuser = "a"\nrole = "king"', "oidc.0.role"),
        (ISSUER + OIDC + 'email = "a@b.c"\nuser = "a"\ncreate = "yes"', "oidc.0.create"),
        ('[[aws]]\naccount = "12"\niam_role = "x"\nuser = "a"', "aws.0.account"),
        ('[[aws]]\naccount = "123456789012"\nuser = "a"', "iam_role or iam_user"),
        ('[[kubernetes]]\nnamespace = "ci"\nuser = "a"', "kubernetes.0.service_account"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match="the file") as caught:
        parse(text.encode(), "the file")
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read"):
        read_sign_in_file(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "sts.amazonaws.com.evil.example", "127.0.0.1", "sts.amazonaws.com:8443", "x@sts.amazonaws.com"],
)
def test_only_hosts_of_sts_can_be_allowed(host: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=r"sts\.amazonaws\.com"):
        AuthSettings(sts_hosts=(host,))


def test_hosts_and_ids_are_lists_as_people_write_them() -> None:
    found = AuthSettings.model_validate(
        {
            "sts_hosts": "sts.eu-west-1.amazonaws.com, sts.cn-north-1.amazonaws.com.cn",
            "server_ids": "https://a,https://b",
        }
    )
    assert found.sts_hosts == ("sts.eu-west-1.amazonaws.com", "sts.cn-north-1.amazonaws.com.cn")
    assert found.server_ids == ("https://a", "https://b")
