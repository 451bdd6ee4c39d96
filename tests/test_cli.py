"""The command line: what a newcomer types, and what they read when it is wrong."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.kit.pages import Pages

from prefillwatch import __version__
from prefillwatch.cli import main

COMMANDS = (
    "serve",
    "run",
    "demo",
    "sim",
    "probe",
    "sweep",
    "trace",
    "check",
    "doctor",
    "record",
    "replay",
    "assets",
    "healthcheck",
)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFILLWATCH_CONFIG", "PREFILLWATCH_UPSTREAM", "PREFILLWATCH_ADMIN"):
        monkeypatch.delenv(name, raising=False)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="prefillwatch")


def test_version() -> None:
    assert invoke("--version").output == f"prefillwatch {__version__}\n"


def test_help_lists_every_command_and_needs_none_of_them() -> None:
    script = "import sys; from prefillwatch.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for command in COMMANDS:
        assert f"\n  {command} " in shown
    modules = set(shown.splitlines()[-1].split())
    assert modules.isdisjoint({"pydantic", "httpx", "numpy", "prefillwatch.supervision.supervisor"})


def test_a_terminal_without_our_signs_shows_another() -> None:
    argv = [sys.executable, "-m", "prefillwatch", "--help"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(argv, capture_output=True, encoding="latin-1", check=False, env=environment)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Start 'vllm serve ?'" in shown.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: prefillwatch {command}")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_written_in_one_form(command: str) -> None:
    found = main.get_command(click.Context(main), command)
    assert found is not None
    context = click.Context(found, info_name=command, max_content_width=200)
    records = [record for option in found.params if (record := option.get_help_record(context)) and record[1]]
    for name, text in records:
        assert not re.search("INTEGER|FLOAT|RANGE", name), name
        sentence, *remarks = re.split(r"\s+\[(?=default: |env var: |required|x>=|\d+<=)", text)
        assert re.match(r"([A-Z0-9/'-]|article: )", sentence), text
        assert re.search(r"\.\)?$", sentence), text
        assert all(remark.endswith("]") for remark in remarks), text


def test_an_unknown_command_is_told_the_nearest() -> None:
    result = invoke("server")
    assert result.exit_code == 2
    assert "no command 'server'; did you mean 'serve'?" in result.output


def test_an_unknown_option_is_told_the_nearest() -> None:
    result = invoke("serve", "--upstrem", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert "--upstream" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve",), "prefillwatch: error: upstream is not set; name the server to watch"),
        (("check",), "prefillwatch: error: upstream is not set; name the server to watch"),
        (("serve", "--upstream", "localhost:8000"), "is not a server's address; write http://localhost:8000"),
        (("run", "my-server", "--fast", "--listen", "x"), "it is not known how to tell 'my-server' its port"),
        (("run", "--", "my-server"), "it is not known how to tell 'my-server' its port; write {port}"),
        (("run",), "Missing argument '-- COMMAND"),
        (("sim", "--listen", "8000"), "--listen: '8000' is not an address to listen on"),
        (("sim", "--preset", "huge"), "'huge' is not one of"),
        (("sim", "--num-gpu-blocks-override", "99999999999999"), "is not in the range 1<=x<=10000000"),
        (("sim", "--num-gpu-blocks-override", "9"), "raise num_gpu_blocks_override or lower max_model_len"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_clear_message(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        ("no-such-program", 127, "No such file or directory; is it installed, and in PATH?"),
        ("/", 126, "Permission denied; is it a program that you may run?"),
    ],
)
def test_a_command_that_cannot_be_started_is_all_that_is_said(command: str, code: int, reason: str) -> None:
    addresses = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    result = invoke("run", *addresses, "--", command, "--port", "8000")
    assert result.exit_code == code
    assert result.stderr == f"prefillwatch: error: cannot start {command!r}: {reason}\n"


def test_a_command_on_our_own_port_is_refused() -> None:
    result = invoke("run", "--", "vllm", "serve", "MODEL", "--host", "0.0.0.0", "--port", "8080")
    assert result.exit_code == 2
    assert (
        "the command's server has no address of its own: upstream http://127.0.0.1:8080 is where prefillwatch itself "
        "would answer (--listen 127.0.0.1:8080); choose another address with --listen" in result.stderr
    )


@pytest.mark.parametrize("key", ["listen", "admin"])
def test_a_port_in_use_is_named_with_its_remedy(key: str) -> None:
    other_key = {"listen": "admin", "admin": "listen"}[key]
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        result = invoke("serve", "--upstream", "http://127.0.0.1:1", f"--{key}", taken, f"--{other_key}", "127.0.0.1:0")
    assert result.exit_code == 1
    assert f"error: {taken} is in use by another process; stop that one or choose another address" in result.stderr
    assert f"--{key}" in result.stderr


def test_certificates_are_looked_at_before_anything_starts(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("no certificate\n")
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    result = invoke("serve", "--upstream", "http://127.0.0.1:1", *files)
    assert result.exit_code == 2
    assert "are no pair of PEM files that belong together" in result.stderr


def test_check_names_an_upstream_that_is_not_there() -> None:
    result = invoke("check", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    assert result.exit_code == 1
    assert "failed  upstream: no answer from http://127.0.0.1:1" in result.stdout
    assert "Traceback" not in result.output


@pytest.fixture
def upstream() -> Iterator[Pages]:
    with contextlib.closing(Pages()) as pages:
        yield pages


def checked(upstream: Pages, answers: Mapping[str, tuple[int, bytes]], *more: str) -> Result:
    upstream.routes = dict(answers)
    return invoke("check", "--upstream", upstream.url, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *more)


METRICS = (
    b'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:num_requests_running{engine="0"} 1\n'
    b'vllm:num_preemptions_total{engine="0"} 0\n'
    b'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="9"} 1\n'
)


def test_check_of_a_whole_server_says_ok_in_every_line(upstream: Pages) -> None:
    models = b'{"object":"list","data":[{"id":"m"},{"id":"adapter"}]}'
    answers = {"/health": (200, b""), "/v1/models": (200, models), "/metrics": (200, METRICS)}
    result = checked(upstream, answers, "--max-clients", "100")
    assert result.exit_code == 0
    assert {line.split()[0] for line in result.stdout.splitlines()} == {"ok"}
    assert "models: m, adapter" in result.stdout


@pytest.mark.parametrize(
    ("answers", "missing"),
    [
        ({"/v1/models": (401, b"")}, "models: the server wants a key for /v1/models; set upstream_api_key"),
        ({"/v1/models": (200, b"<html>")}, 'models: /v1/models names none; every series will have model="other"'),
        ({}, "metrics: /metrics answers 404; no KV cache, queue and preemptions (latencies all the same)"),
        ({"/metrics": (200, b"")}, "metrics: the metrics page is empty; no KV cache, queue and preemptions"),
        (
            {"/metrics": (200, b"vllm:num_requests_running 1\n")},
            "metrics: the page does not report KV cache usage, KV cache capacity, preemptions",
        ),
        ({"/metrics": (200, b"up 1\n")}, "metrics: the page is of no server kind known here; no KV cache and queue"),
        (
            {"/metrics": (200, b"vllm:time_to_first_token_seconds_count 7\n")},
            "metrics: the page is of vllm, without gauges; no KV cache and queue",
        ),
        (
            {"/metrics": (200, b"".join(b'vllm:num_requests_running{pid="%d"} 1\n' % pid for pid in range(4099)))},
            "metrics: the page has 3 more series than are read; figures are incomplete",
        ),
    ],
)
def test_check_names_what_is_missing_and_is_content(
    upstream: Pages, answers: dict[str, tuple[int, bytes]], missing: str
) -> None:
    result = checked(upstream, {"/health": (200, b""), **answers})
    assert f"missing {missing}" in result.stdout
    assert result.exit_code == 0


def test_check_of_llamacpp_names_the_setting_that_lets_it_sleep(upstream: Pages) -> None:
    answers = {"/health": (200, b""), "/metrics": (200, b"llamacpp:requests_processing 1\n")}
    told = "metrics: llamacpp with 1 engine(s); if its model is meant to sleep, set scrape_idle to false\n"
    assert told in checked(upstream, answers).stdout


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"/metrics": (200, b"[]")}, "metrics: the answer is no metrics page; no KV cache, queue and preemptions"),
        ({}, "metrics: /metrics answers 404; no KV cache, queue and preemptions (latencies all the same)"),
    ],
)
def test_check_says_what_to_set_where_the_page_is_somewhere_else(
    upstream: Pages, answers: dict[str, tuple[int, bytes]], told: str
) -> None:
    answers = {"/health": (200, b""), "/prometheus/metrics": (200, METRICS), **answers}
    result = checked(upstream, answers)
    assert f"missing {told}; if the page lies elsewhere, set upstream_metrics_url\n" in result.stdout
    for address in ("/prometheus/metrics", f"http://localhost:{upstream.port}/prometheus/metrics"):
        assert "metrics: vllm with 1 engine(s)" in checked(upstream, answers, "--upstream-metrics-url", address).stdout


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [((), "set upstream_api_key"), (("--upstream-api-key", "k"), "upstream_api_key is not the one")],
)
def test_check_of_a_server_that_wants_a_key_for_everything(
    upstream: Pages, arguments: tuple[str, ...], remedy: str
) -> None:
    result = checked(upstream, {"/health": (401, b"")}, *arguments)
    assert result.exit_code == 1
    assert f"/health answers 401: the server wants a key; {remedy}\n" in result.stdout


def test_check_of_a_server_that_does_not_speak_tls(upstream: Pages) -> None:
    result = checked(upstream, {}, "--upstream", f"https://127.0.0.1:{upstream.port}")
    assert result.exit_code == 1
    assert "does it speak TLS there" in result.stdout


@pytest.mark.parametrize(
    ("path", "finding"),
    [
        ("engine.sock", "ok      engine_socket: engine.sock can be listened on"),
        ("none/engine.sock", "is no folder; choose another path"),
        ("file", "missing engine_socket: file is there, and no socket; choose another path"),
    ],
)
def test_check_looks_at_where_the_plugin_would_reach_us(
    upstream: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, finding: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert finding in checked(upstream, {}, "--engine-socket", path).stdout


@pytest.mark.parametrize(
    ("arguments", "descriptors", "finding"),
    [
        ((), 1 << 20, "ok      descriptors: 1048576 are enough for 524244 clients of a relay"),
        ((), 1024, "missing descriptors: 1024 are enough for 468 clients of a relay, not for 10000; raise the limit"),
        (("--max-clients", "900"), 1024, "not for 900; raise the limit"),
        (("--max-clients", "900", "--relays", "2"), 1024, "ok      descriptors: "),
    ],
)
def test_check_counts_descriptors(
    upstream: Pages,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    descriptors: int,
    finding: str,
) -> None:
    monkeypatch.setattr("prefillwatch.commands.check.raise_descriptor_limit", lambda: descriptors)
    assert finding in checked(upstream, {"/health": (200, b"")}, *arguments).stdout


def test_check_says_when_largest_bodies_need_more_than_all_bodies_may_have(upstream: Pages) -> None:
    arguments = ("--relays", "4", "--max-body", "1GiB")
    text = "missing bodies: 4 relays with room for one body of 1GiB each"
    assert text in checked(upstream, {"/health": (200, b"")}, *arguments).stdout
    assert "bodies:" not in checked(upstream, {"/health": (200, b"")}).stdout


def test_check_finds_that_upstream_is_ourselves() -> None:
    result = invoke("check", "--upstream", "http://127.1:9", "--listen", "127.0.0.1:9", "--admin", "127.0.0.1:0")
    assert result.exit_code == 1
    assert "failed  upstream: upstream http://127.1:9 is 127.0.0.1:9, where prefillwatch itself would" in result.stdout


def test_serve_does_not_start_in_front_of_itself() -> None:
    result = invoke("serve", "--upstream", "http://127.1:9", "--listen", "127.0.0.1:9", "--admin", "127.0.0.1:0")
    assert result.exit_code == 2
    assert "name the server behind it" in result.stderr


def test_only_an_address_in_use_may_be_that_of_a_running_prefillwatch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        addresses = ("--listen", taken, "--admin", "no..name:0")
        lines = invoke("check", "--upstream", "http://127.0.0.1:1", *addresses).stdout.splitlines()
    listen, admin = (next(line for line in lines if line.startswith(f"failed  {key}:")) for key in ("listen", "admin"))
    assert listen.endswith("(unless it is prefillwatch itself that runs there)")
    assert admin.endswith("is not known here (no valid name); choose another with --admin")


def test_check_of_an_unhealthy_server_fails(upstream: Pages) -> None:
    result = checked(upstream, {"/health": (503, b"")})
    assert result.exit_code == 1
    assert "/health answers 503: the server is not healthy, or it is another one" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "path", "code"),
    [((), "/healthz", 0), (("--ready",), "/readyz", 0), ((), "/readyz", 1)],
)
def test_healthcheck_asks_the_admin_address(upstream: Pages, arguments: tuple[str, ...], path: str, code: int) -> None:
    upstream.routes = {path: (200, b"fine")}
    result = invoke("healthcheck", "--admin", f"0.0.0.0:{upstream.port}", *arguments)
    assert result.exit_code == code
    assert ("fine" in result.stdout) == (code == 0)


def test_healthcheck_without_a_prefillwatch_says_so() -> None:
    result = invoke("healthcheck", "--admin", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:1/healthz" in result.stderr
    assert "is prefillwatch running with this admin address?" in result.stderr


def test_assets_are_written_once_and_not_over_what_the_user_changed(tmp_path: Path) -> None:
    target = tmp_path / "assets"
    assert invoke("assets", str(target)).exit_code == 0
    assert {path.name for path in target.iterdir()} == {"grafana", "alerts", "deploy"}
    assert invoke("assets", str(target)).exit_code == 0
    changed = target / "grafana" / "README.md"
    changed.write_text("mine\n")
    refused = invoke("assets", str(target))
    assert refused.exit_code == 2
    assert f"{changed} exists and differs (1 such files); choose another folder or add --overwrite" in refused.stderr
    assert changed.read_text() == "mine\n"
    assert invoke("assets", str(target), "--overwrite").exit_code == 0
    assert changed.read_text() != "mine\n"


def test_assets_link_to_runbooks_where_the_user_serves_them(tmp_path: Path) -> None:
    assert invoke("assets", str(tmp_path), "--runbook-base", "https://wiki.corp/user/runbooks").exit_code == 0
    for name in ("rules/replica.yml", "kubernetes/prometheusrule.yaml"):
        text = (tmp_path / "alerts" / name).read_text()
        assert "runbook_url: https://wiki.corp/user/runbooks/StreamFreeze.md\n" in text
        assert "externalURL" not in text
    assert 'runbook_base: "https://wiki.corp/user/runbooks/"' in (tmp_path / "alerts/source.yml").read_text()
    checked = subprocess.run([sys.executable, "-m", "alerts.generate", "--check"], cwd=tmp_path, check=False)
    assert checked.returncode == 0, "the generator would write the same"


def test_assets_refuse_runbooks_at_no_address(tmp_path: Path) -> None:
    refused = invoke("assets", str(tmp_path / "out"), "--runbook-base", "wiki.corp/runbooks")
    assert refused.exit_code == 2
    assert "'wiki.corp/runbooks' is no address of runbooks; write https://HOST/PATH/" in refused.stderr
    assert not (tmp_path / "out").exists()
