"""The command of ``run``: which address its server gets, and what is added to it."""

from __future__ import annotations

import shlex

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.supervision.upstream_command import UpstreamCommand, free_port, prepare

FREE = 4321


def prepared(command: str, upstream: str | None = None) -> UpstreamCommand:
    return prepare(shlex.split(command), upstream, lambda: FREE)


@pytest.mark.parametrize(
    ("command", "completed"),
    [
        ("vllm serve m", "vllm serve m --host 127.0.0.1 --port 4321"),
        ("/opt/bin/vllm serve m -tp 2", "/opt/bin/vllm serve m -tp 2 --host 127.0.0.1 --port 4321"),
        ("vllm serve m --host ::1", "vllm serve m --host ::1 --port 4321"),
        (
            "python -m vllm.entrypoints.openai.api_server --model m",
            "python -m vllm.entrypoints.openai.api_server --model m --host 127.0.0.1 --port 4321",
        ),
        (
            "python3 -m sglang.launch_server --model-path m",
            "python3 -m sglang.launch_server --model-path m --host 127.0.0.1 --port 4321",
        ),
        ("prefillwatch sim --preset small", "prefillwatch sim --preset small --listen 127.0.0.1:4321"),
        ("python -m prefillwatch sim", "python -m prefillwatch sim --listen 127.0.0.1:4321"),
        ("my-server --bind 127.0.0.1:{port}", "my-server --bind 127.0.0.1:4321"),
        ("bash -c 'exec vllm serve m --port {port}'", "bash -c 'exec vllm serve m --port 4321'"),
    ],
)
def test_a_free_loopback_port_is_put_into_the_command(command: str, completed: str) -> None:
    result = prepared(command)
    assert list(result.argv) == shlex.split(completed)
    host = "[::1]" if "::1" in command else "127.0.0.1"
    assert result.upstream == f"http://{host}:{FREE}"


@pytest.mark.parametrize(
    ("command", "upstream"),
    [
        ("vllm serve m --port 9000", "http://127.0.0.1:9000"),
        ("vllm serve m --port=9000 --host=10.0.0.5", "http://10.0.0.5:9000"),
        ("vllm serve m --port 9000 --host 0.0.0.0", "http://127.0.0.1:9000"),
        ("vllm serve m --port 9000 --host ::", "http://[::1]:9000"),
        ("vllm serve m --port 9000 --host fd00::1", "http://[fd00::1]:9000"),
        ("vllm serve m --port 9000 --port 9001", "http://127.0.0.1:9001"),
        ("vllm serve m --port 9000 --ssl-certfile c.pem --ssl-keyfile k.pem", "https://127.0.0.1:9000"),
        ("vllm serve m --uds /run/vllm.sock", "unix:/run/vllm.sock"),
        ("prefillwatch sim --listen 127.0.0.1:7000", "http://127.0.0.1:7000"),
        ("unheard-of-server --port 9000", "http://127.0.0.1:9000"),
    ],
)
def test_the_address_that_the_command_has_is_used(command: str, upstream: str) -> None:
    result = prepared(command)
    assert list(result.argv) == shlex.split(command)
    assert result.upstream == upstream


def test_an_upstream_of_the_users_is_believed() -> None:
    result = prepared("my-server", upstream="http://127.0.0.1:5000")
    assert result == UpstreamCommand(("my-server",), "http://127.0.0.1:5000")


def test_a_command_that_cannot_be_told_its_port_is_refused_with_both_remedies() -> None:
    with pytest.raises(ConfigError, match=r"how to tell 'my-server' its port; write \{port\} .* or .* --upstream"):
        prepared("/usr/bin/my-server --fast")


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="the command's --port '99999' is no port; use 1 to 65535"):
        prepared("vllm serve m --port 99999")


def test_the_servers_own_key_is_found_for_our_scrapes() -> None:
    assert prepared("vllm serve m --api-key marker").api_key == "marker"


@pytest.mark.parametrize(("command", "name"), [("/opt/vllm serve m --port 1", "vllm serve"), ("./s --port 1", "s")])
def test_the_name_in_messages_is_short(command: str, name: str) -> None:
    assert prepared(command).name == name


def test_a_free_port_can_be_bound_at_once() -> None:
    assert 1024 <= free_port() <= 65535
