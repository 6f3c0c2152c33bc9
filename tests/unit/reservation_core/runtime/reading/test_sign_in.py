"""What of the settings of signing in can't be worked with is said at the start, by its name."""

from pathlib import Path
from typing import cast

import pytest

from reservation_core.runtime.reading.sign_in import open_sign_in
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.settings.kubernetes import KubernetesSettings
from reservation_core.runtime.wiring import Runtime

AWS = '[[aws]]\naccount = "123456789012"\niam_role = "x"\nuser = "a"\n'
KUBERNETES = '[[kubernetes]]\nnamespace = "ci"\nservice_account = "x"\nuser = "a"\n'
NOBODY = cast("Runtime", None)
"""Nothing of it is looked at before the settings are."""


@pytest.mark.parametrize("rules", [AWS, KUBERNETES])
def test_proofs_that_are_for_a_server_need_its_name(tmp_path: Path, rules: str) -> None:
    (tmp_path / "rules.toml").write_text(rules)
    with pytest.raises(SettingsError, match="GPU_DEV_AUTH__SERVER_IDS is not set"):
        open_sign_in(ApiSettings(auth=AuthSettings(file=tmp_path / "rules.toml")), NOBODY)


def test_authorities_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(AWS)
    (tmp_path / "ca.pem").write_text("no certificate")
    for path in (tmp_path / "nowhere.pem", tmp_path / "ca.pem"):
        auth = AuthSettings(file=tmp_path / "rules.toml", server_ids=("us",), ca_file=path)
        with pytest.raises(SettingsError, match="GPU_DEV_AUTH__CA_FILE"):
            open_sign_in(ApiSettings(auth=auth), NOBODY)


def test_the_environment_says_it_as_the_guide_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_AUTH__FILE", str(tmp_path / "rules.toml"))
    monkeypatch.setenv("GPU_DEV_AUTH__SERVER_IDS", "https://a.example, https://b.example")
    monkeypatch.setenv("GPU_DEV_AUTH__STS_HOSTS", "sts.eu-west-1.amazonaws.com")
    monkeypatch.setenv("GPU_DEV_AUTH__TOKEN_S", "600")
    auth = ApiSettings().auth
    assert auth.server_ids == ("https://a.example", "https://b.example")
    assert (auth.sts_hosts, auth.lasts.total_seconds()) == (("sts.eu-west-1.amazonaws.com",), 600)
    guide = (Path(__file__).parents[5] / "docs" / "guides" / "signing-in.md").read_text()
    for name in AuthSettings.model_fields:
        assert f"__{name.upper()}`" in guide, name


def test_a_kubeconfig_that_can_not_be_used_is_no_surprise_later(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(KUBERNETES)
    settings = ApiSettings(
        auth=AuthSettings(file=tmp_path / "rules.toml", server_ids=("us",)),
        kubernetes=KubernetesSettings(kubeconfig=tmp_path / "nowhere"),
    )
    with pytest.raises(SettingsError, match="kubeconfig"):
        open_sign_in(settings, NOBODY)
