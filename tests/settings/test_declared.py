"""Settings: what is accepted, which source wins, and what a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.settings.addresses import ListenAddress
from prefillwatch.settings.declared import Settings, kind_of, shown_default
from prefillwatch.settings.processes import OBSERVER
from prefillwatch.settings.sources import load

DATA = Path(__file__).parents[1] / "data" / "config"
INVALID = sorted(DATA.glob("invalid-*.yml"))


def test_the_invalid_files_are_found() -> None:
    assert len(INVALID) >= 25


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_an_invalid_file_is_refused_with_input_and_remedy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    expected = path.read_text().splitlines()[0].removeprefix("# expect: ")
    with pytest.raises(ConfigError) as caught:
        load({}, {}, Path(path.name))
    assert expected in str(caught.value)
    assert "marker-secret" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert caught.value.exit_code == 2


def test_a_valid_file() -> None:
    settings = load({}, {}, DATA / "valid.yml")
    assert settings.upstream == "http://127.0.0.1:8000"
    assert settings.listen == ListenAddress("::1", 8080)
    assert settings.admin == ListenAddress("0.0.0.0", 9843)
    assert (settings.relays, settings.usage, settings.gpu) == (2, "off", "off")
    assert (settings.max_body, settings.request_timeout, settings.idle_limit) == (2**30, 90.0, 0.0)
    assert (settings.prompt_buckets, settings.windows) == ((512, 2048, 8192), (10, 60))
    assert settings.upstream_insecure is True
    assert settings.upstream_api_key is not None
    assert "marker-secret" not in repr(settings)


def test_the_key_for_upstream_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("marker-secret\n")
    settings = load({"upstream_api_key_file": str(file)}, {})
    assert settings.of(OBSERVER)["upstream_api_key"] == "marker-secret"
    assert "marker-secret" not in repr(settings)
    with pytest.raises(ConfigError, match="upstream_api_key and upstream_api_key_file are both set; keep the file"):
        load({"upstream_api_key_file": str(file)}, {"PREFILLWATCH_UPSTREAM_API_KEY": "other"})
    assert load({"upstream_api_key": "given"}, {}).of(OBSERVER)["upstream_api_key"] == "given"
    assert load({}, {}).of(OBSERVER)["upstream_api_key"] is None


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yml"
    empty.write_text("# nothing yet\n")
    assert load({}, {}, empty) == load({}, {})


@pytest.mark.apart
@pytest.mark.parametrize("text", ["[" * 5000, "&a [*a]", "&a {relays: *a}", "upstream: &a {a: *a}"], ids=range(4))
def test_a_file_that_has_no_end_is_refused_in_few_words(text: str, tmp_path: Path) -> None:
    file = tmp_path / "endless.yml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load({}, {}, file)
    assert len(str(caught.value)) < 300


def test_aliases_of_aliases_are_not_written_out(tmp_path: Path) -> None:
    file = tmp_path / "laughs.yml"
    levels = ["&a0 [x]", *(f"&a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
    file.write_text(f"upstream: [{','.join(levels)}]\n")
    with pytest.raises(ConfigError, match="is a list; write a single value"):
        load({}, {}, file)


def test_a_file_too_large_for_a_configuration_is_not_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(ConfigError, match=r"has more than 1048576 bytes; is it a configuration file\?"):
        load({}, {}, file)


def test_a_merge_may_be_set_anew(tmp_path: Path) -> None:
    file = tmp_path / "prefillwatch.yml"
    file.write_text("<<: {relays: 2, max_models: 5}\nrelays: 3\n")
    settings = load({}, {}, file)
    assert (settings.relays, settings.max_models) == (3, 5)


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "prefillwatch.yml"
    file.write_text("relays: 2\nmax_models: 2\nwindows: 2s\n")
    environ = {"PREFILLWATCH_RELAYS": "3", "PREFILLWATCH_MAX_MODELS": "3", "PREFILLWATCH_CONFIG": str(file)}
    settings = load({"relays": "4"}, environ)
    assert (settings.relays, settings.max_models, settings.windows) == (4, 3, (2,))


def test_the_file_named_by_flag_wins_over_the_one_named_by_environment(tmp_path: Path) -> None:
    file = tmp_path / "prefillwatch.yml"
    file.write_text("relays: 2\n")
    assert load({}, {"PREFILLWATCH_CONFIG": "/no/such/file"}, file).relays == 2


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration file /no/such/file: No such file"):
        load({}, {"PREFILLWATCH_CONFIG": "/no/such/file"})


@pytest.mark.parametrize(
    ("flags", "environ", "source"),
    [({"relays": "x"}, {}, "--relays"), ({}, {"PREFILLWATCH_RELAYS": "x"}, "PREFILLWATCH_RELAYS")],
)
def test_an_error_names_the_source_of_the_bad_value(
    flags: dict[str, str], environ: dict[str, str], source: str
) -> None:
    with pytest.raises(ConfigError, match=rf"relays \({source}\): 'x' is not a whole number"):
        load(flags, environ)


def test_every_problem_gets_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"relays": "x", "max_body": "y"}, {})
    assert len(str(caught.value).splitlines()) == 2


def test_an_unknown_variable_is_refused_by_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"PREFILLWATCH_UPSTRAEM is no setting .* did you mean PREFILLWATCH_UPSTREAM"):
        load({}, {"PREFILLWATCH_UPSTRAEM": "http://127.0.0.1:8000"})


def test_the_key_of_the_experiments_is_no_setting_and_no_mistake() -> None:
    assert "api_key" not in Settings.model_fields
    load({}, {"PREFILLWATCH_API_KEY": "sk-secret", "PREFILLWATCH_UPSTREAM": "http://x"}, None)


@pytest.mark.parametrize(
    "name",
    [
        "PREFILLWATCH_SERVICE_HOST",
        "PREFILLWATCH_SERVICE_PORT",
        "PREFILLWATCH_SERVICE_PORT_ADMIN",
        "PREFILLWATCH_PORT",
        "PREFILLWATCH_PORT_8080_TCP",
        "PREFILLWATCH_PORT_8080_TCP_ADDR",
        "PREFILLWATCH_ADMIN_SERVICE_HOST",
        "PREFILLWATCH_ADMIN_PORT_9843_TCP_PROTO",
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_no_settings(name: str) -> None:
    assert load({}, {name: "tcp://10.0.0.1:8080"}) == load({}, {})


def test_our_own_page_is_not_that_of_upstream() -> None:
    for address in ("http://localhost:9843/metrics", "http://127.0.0.1:8080/metrics"):
        with pytest.raises(ConfigError, match="is where prefillwatch itself would answer; name the page"):
            load({"upstream_metrics_url": address}, {})
    assert load({"upstream_metrics_url": "http://localhost:9844/metrics"}, {}).upstream_metrics_url


def test_tls_needs_certificate_and_key(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("")
    with pytest.raises(ConfigError, match="tls_cert is set without tls_key; TLS needs both"):
        load({"tls_cert": str(file)}, {})


def test_upstream_is_asked_for_where_it_is_needed() -> None:
    with pytest.raises(ConfigError, match="upstream is not set; name the server to watch, for example --upstream http"):
        load({}, {}).required_upstream()


@pytest.mark.parametrize("key", Settings.model_fields)
def test_every_setting_has_a_kind_and_a_description(key: str) -> None:
    description = Settings.model_fields[key].description
    assert kind_of(key)
    assert description
    assert not description.endswith(".")


@pytest.mark.parametrize("key", [key for key in Settings.model_fields if shown_default(key)])
def test_the_default_as_shown_reads_back_as_the_default(key: str) -> None:
    assert getattr(load({key: shown_default(key)}, {}), key) == Settings.model_fields[key].default
