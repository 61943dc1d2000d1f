"""Settings: what is accepted, and what the refusals say."""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from extracted import extracted
from paths import ROOT

from interpool.handler.config import HostSettings, ModelSettings, is_refused, startup_timeout
from interpool.handler.described import described
from interpool.handler.errors import NameRefused, SettingsError, load_failure_code
from interpool.handler.frontend.shim import OTHER_VARIABLES, SETTINGS
from interpool.handler.obstacles import obstacles
from interpool.handler.signature_policy import SignaturePolicy
from interpool.handler.variables import OtherVariables
from interpool.native.archive.manifest_names import NAMES

SAMPLE = ROOT / "configs" / "model-config.yaml"


def _model(directory: Path, config: str | None) -> Path:
    if config is None:
        return extracted(directory)
    (directory / "config.yaml").write_text(config)
    return extracted(directory, configFile="config.yaml")


@pytest.mark.parametrize("config", [None, "", "minWorkers: 2\n", "interpool:\n"])
def test_without_settings_the_defaults_hold(tmp_path: Path, config: str | None) -> None:
    assert ModelSettings.of_model(_model(tmp_path, config)) == ModelSettings(
        pool="default", interpreters=None, tracebacks=False
    )


def test_settings_override_the_defaults(tmp_path: Path) -> None:
    config = "interpool: {pool: large-1, interpreters: 3, tracebacks: true}"
    settings = ModelSettings.of_model(_model(tmp_path, config))
    assert (settings.pool, settings.interpreters, settings.tracebacks) == ("large-1", 3, True)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("interpool: {interpeters: 3}", "unknown setting `interpool.interpeters`; the settings are: pool"),
        ("interpool: {interpreters: 0}", "`interpool.interpreters`"),
        ("interpool: {interpreters: 1000}", "`interpool.interpreters`"),
        ("interpool: {share: 0}", "a share is a number of interpreters, 1 to 256, or a part of them"),
        ("interpool: {share: 1.0}", "not 1.0"),
        ("interpool: {share: true}", "not True"),
        ("interpool: {share: 257}", "not 257"),
        ("interpool: {share: half}", "not 'half'"),
        ("interpool: {pool: ../up}", "`interpool.pool`"),
        ("interpool: {pool: ''}", "`interpool.pool`"),
        ("interpool: {pool: own-team}", "choose another, or `isolation: process`"),
        ("interpool: [1]", "must hold settings by name"),
        ("interpool: {", "cannot be read"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name_and_file(tmp_path: Path, config: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        ModelSettings.of_model(_model(tmp_path, config))
    assert words in str(caught.value)
    assert str(tmp_path / "config.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        (None, None),
        ("minWorkers: 2", None),
        ("startupTimeout: 300", 300),
        ("startupTimeout: 0", None),
        ("startupTimeout: 1.5", None),
        ("startupTimeout: true", None),
        ("startupTimeout: 2147483648", None),
    ],
)
def test_how_long_a_load_may_take_is_what_torchserve_reads(
    tmp_path: Path, config: str | None, seconds: int | None
) -> None:
    assert startup_timeout(_model(tmp_path, config)) == seconds


def test_a_model_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"holds no MAR-INF/MANIFEST.json"):
        ModelSettings.of_model(tmp_path)


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("name", ["../secret.yaml", "/etc/hostname", "a/../../secret.yaml", "link.yaml"])
def test_no_name_in_a_manifest_leads_out_of_the_models_directory(tmp_path: Path, key: str, name: str) -> None:
    (tmp_path / "secret.yaml").write_text("interpool: {pool: stolen}")
    model = extracted(tmp_path / "model", **{key: name})
    (model / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    assert is_refused(model)
    for read in (ModelSettings.of_model, startup_timeout, obstacles):
        with pytest.raises(NameRefused) as caught:
            read(model)
        said = str(caught.value)
        assert f"{model}/MAR-INF/MANIFEST.json: its {key} {name!r}" in said
        assert "Put the file into the model's directory" in said
        assert load_failure_code(caught.value) == 400


def test_the_environment_configures_the_host() -> None:
    cores = len(os.sched_getaffinity(0))
    assert HostSettings.of_environment({}).interpreters == cores
    assert HostSettings.of_environment({"INTERPOOL_INTERPRETERS": ""}).interpreters == cores
    given = {"INTERPOOL_INTERPRETERS": "7", "INTERPOOL_IDLE_EXIT_S": "0.5", "OTHER": "x"}
    settings = HostSettings.of_environment(given)
    assert (settings.interpreters, settings.idle_exit_s) == (7, 0.5)
    with pytest.raises(SettingsError, match="`INTERPOOL_INTERPRETERS`"):
        HostSettings.of_environment({"INTERPOOL_INTERPRETERS": "many"})
    with pytest.raises(SettingsError, match="`INTERPOOL_IDLE_EXIT_S`"):
        HostSettings.of_environment({"INTERPOOL_IDLE_EXIT_S": "-1"})
    with pytest.raises(SettingsError, match="`INTERPOOL_DRAIN_S`"):
        HostSettings.of_environment({"INTERPOOL_DRAIN_S": "soon"})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("INTERPOOL_SIGNATURE_KEY", "INTERPOOL_SIGNATURE_KEYS"),
        ("INTERPOOL_STOCK_ARCHIVE", "INTERPOOL_STOCK_ARCHIVES"),
        ("INTERPOOL_INTERPETERS", "INTERPOOL_INTERPRETERS"),
    ],
)
@pytest.mark.parametrize("value", ["/k.pem", ""])
def test_an_unknown_variable_is_refused_with_the_nearest(name: str, nearest: str, value: str) -> None:
    with pytest.raises(SettingsError, match=rf"no variable {name} \(is it {nearest}\?\)"):
        HostSettings.of_environment({name: value, "OTHER": "x"})


def test_variables_of_kubernetes_of_tests_and_of_scripts_are_allowed() -> None:
    service = (
        "INTERPOOL_SERVICE_HOST",
        "INTERPOOL_SERVICE_PORT",
        "INTERPOOL_SERVICE_PORT_HTTP_METRICS",
        "INTERPOOL_PORT",
        "INTERPOOL_PORT_8080_TCP",
        "INTERPOOL_PORT_8080_TCP_ADDR",
        "INTERPOOL_TEAM_A_SERVICE_HOST",
        "INTERPOOL_TEAM_A_PORT_53_UDP_PROTO",
    )
    others = ("INTERPOOL_TEST_SEED", "INTERPOOL_TORCH", "INTERPOOL_PREPARED")
    HostSettings.of_environment(dict.fromkeys((*service, *others), "x"))
    for name in ("INTERPOOL_PORTS", "INTERPOOL_PORT_TCP", "INTERPOOL_"):
        with pytest.raises(SettingsError, match=f"no variable {name}[. ]"):
            HostSettings.of_environment({name: "x"})


def _in_python(path: Path) -> set[str]:
    tree = ast.parse(path.read_bytes())
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and _VARIABLE.fullmatch(text)}


def _variables_in(path: Path) -> set[str]:
    """The variables of the environment that a file reads or sets."""
    if path.suffix == ".py":
        return _in_python(path)
    text = path.read_text(encoding="utf-8", errors="ignore")
    if path.suffix in (".cc", ".h"):
        return set(re.findall(r'"(INTERPOOL_[A-Z_]+)"', text))
    if path.suffix == ".cmake" or path.name == "CMakeLists.txt":
        return set(re.findall(r"ENV\{(INTERPOOL_[A-Z_]+)", text))
    if "configs" in path.parts:
        return set(_VARIABLE.findall(text))
    return set(re.findall(r"(?:\$\{?|^export )(INTERPOOL_[A-Z_]+)", text, re.MULTILINE))


_VARIABLE = re.compile(r"INTERPOOL_[A-Z_]*[A-Z]")
_FOLDERS = ("handler", "archiver_ext", "native", "src", "scripts", "model_store", "configs", ".ci")


def test_every_variable_in_the_tree_is_known_and_documented_if_a_user_may_set_it() -> None:
    found: dict[str, str] = {}
    for folder in _FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.name in ("shim.py", "variables.py"):
                continue  # they list the variables, and read few
            if path.is_file() and path.suffix not in (".mar", ".so", ".ptpkg", ".pyc", ".png"):
                found |= dict.fromkeys(_variables_in(path), str(path))
    known = SETTINGS | OTHER_VARIABLES
    assert {name: path for name, path in found.items() if name not in known} == {}
    assert known - found.keys() == set()  # no code reads them any more
    assert {each.name for each in (*described(HostSettings), *described(OtherVariables))} == SETTINGS


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_text("-----BEGIN PUBLIC KEY-----\n")
    return path


def test_the_environment_says_what_archives_must_prove(tmp_path: Path, key: Path) -> None:
    nothing = HostSettings.of_environment({})
    assert (nothing.signature_keys, nothing.verify, nothing.self_test) == ((), "digests", False)
    other = tmp_path / "other.pem"
    other.write_text(key.read_text())
    given = {"INTERPOOL_SIGNATURE_KEYS": f"{key}:{other}", "INTERPOOL_SELF_TEST": "1"}
    settings = HostSettings.of_environment(given)
    assert (settings.signature_keys, settings.self_test) == ((key, other), True)
    assert HostSettings.of_environment({"INTERPOOL_VERIFY": "structure"}).verify == "structure"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"INTERPOOL_SIGNATURE_KEYS": ""}, "it is set and names no key"),
        ({"INTERPOOL_SIGNATURE_KEYS": "key.pem"}, "key.pem is not an absolute path"),
        ({"INTERPOOL_SIGNATURE_KEYS": "/nowhere/key.pem"}, "the key /nowhere/key.pem cannot be read"),
        ({"INTERPOOL_SIGNATURE_KEYS": "/etc/passwd"}, "/etc/passwd is not a PEM file of a public key"),
        ({"INTERPOOL_SIGNATURE_KEYS": "KEY", "INTERPOOL_VERIFY": "structure"}, "contradict each other"),
        ({"INTERPOOL_VERIFY": "off"}, "`INTERPOOL_VERIFY`"),
        ({"INTERPOOL_STOCK_ARCHIVES": "maybe"}, "`INTERPOOL_STOCK_ARCHIVES`"),
    ],
)
def test_a_setting_that_would_protect_nothing_is_refused(
    key: Path, environment: dict[str, str], words: str
) -> None:
    given = {name: value.replace("KEY", str(key)) for name, value in environment.items()}
    with pytest.raises(SettingsError) as caught:
        HostSettings.of_environment(given)
    assert words in str(caught.value)


def test_a_model_can_ask_for_more_but_not_for_less(key: Path) -> None:
    strict = HostSettings.of_environment({"INTERPOOL_SIGNATURE_KEYS": str(key), "INTERPOOL_SELF_TEST": "1"})
    asked = SignaturePolicy.of(strict, ModelSettings(self_test=False))
    assert asked == SignaturePolicy([str(key)], digests=True, self_test=True)
    assert SignaturePolicy.of(HostSettings.of_environment({}), ModelSettings(self_test=True)).self_test
    assert SignaturePolicy(**json.loads(json.dumps(asdict(asked)))) == asked


@pytest.mark.parametrize(
    ("environment", "wanted", "size"),
    [
        ({"INTERPOOL_INTERPRETERS": "3"}, None, (3, 3)),
        ({"INTERPOOL_INTERPRETERS": "3", "INTERPOOL_MAX_INTERPRETERS": "5"}, None, (3, 5)),
        ({"INTERPOOL_MAX_INTERPRETERS": "5"}, 2, (2, 5)),
        ({"INTERPOOL_MAX_INTERPRETERS": "5"}, 7, (7, 7)),
        ({}, 2, (2, 2)),
    ],
)
def test_a_pool_grows_only_without_a_number_or_with_a_maximum(
    environment: dict[str, str], wanted: int | None, size: tuple[int, int]
) -> None:
    assert HostSettings.of_environment(environment).pool_size(wanted) == size


def test_a_pool_without_settings_has_room_to_grow() -> None:
    cores = len(os.sched_getaffinity(0))
    assert HostSettings.of_environment({}).pool_size(None) == (cores, min(256, 4 * cores))


def test_the_sample_configuration_is_valid_and_shows_every_setting(tmp_path: Path) -> None:
    text = SAMPLE.read_text()
    ModelSettings.of_model(_model(tmp_path, text))
    assert set(yaml.safe_load(text)["interpool"]) == set(ModelSettings.model_fields)


@pytest.mark.parametrize(
    ("environment", "model", "interpreters", "most"),
    [
        ({}, {}, 4, None),
        ({"INTERPOOL_SHARE": "2"}, {}, 4, 2),
        ({"INTERPOOL_SHARE": "0.5"}, {}, 5, 2),
        ({"INTERPOOL_SHARE": "0.1"}, {}, 4, 1),
        ({"INTERPOOL_SHARE": "0.5"}, {"share": 3}, 4, 3),
        ({}, {"share": 0.75}, 4, 3),
        ({}, {"share": 9}, 4, 9),
    ],
)
def test_a_share_is_a_number_or_a_part_of_the_interpreters(
    environment: dict[str, str], model: dict[str, float], interpreters: int, most: int | None
) -> None:
    host = HostSettings.of_environment(environment)
    assert host.share_of(ModelSettings.model_validate(model), interpreters) == most


@pytest.mark.parametrize("share", ["0", "1.5", "-1", "half", "nan."])
def test_a_share_of_the_server_that_cannot_be_is_refused(share: str) -> None:
    with pytest.raises(SettingsError, match="`INTERPOOL_SHARE`: a share is a number of interpreters"):
        HostSettings.of_environment({"INTERPOOL_SHARE": share})
