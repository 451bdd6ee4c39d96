"""Reaching a server: what it is asked, and what a user reads when it is the wrong one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.certificate import self_signed
from tests.lab.openai_server import OpenAIServer, run_with

from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.lab.client import Answer
from prefillwatch.lab.target import Dialect, Target, TargetError, reach, refusal


def reached(server: OpenAIServer, suffix: str = "", **options: Any) -> Target:
    found: list[Target] = []

    async def scenario(running: OpenAIServer) -> None:
        found.append(await reach(running.url + suffix, **options))

    run_with(server, scenario)
    return found[0]


def error_of(server: OpenAIServer, **options: Any) -> str:
    with pytest.raises(TargetError) as raised:
        reached(server, **options)
    return str(raised.value)


def test_the_first_model_is_taken_with_its_context_length() -> None:
    target = reached(OpenAIServer(models={"data": [{"id": "a", "max_model_len": 4096}, {"id": "b"}]}))
    assert (target.model, target.max_model_len) == ("a", 4096)


def test_a_model_can_be_named() -> None:
    target = reached(OpenAIServer(models={"data": [{"id": "a"}, {"id": "b"}]}), model="b")
    assert (target.model, target.max_model_len) == ("b", None)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_address_with_v1_is_the_same_server(suffix: str) -> None:
    server = OpenAIServer()
    assert reached(server, suffix).url == server.url
    assert server.asked[0].path == "/v1/models"


def test_the_key_goes_with_every_request_and_into_no_text() -> None:
    server = OpenAIServer()
    target = reached(server, api_key="sk-secret", headers={"X-Team": "blue"})
    assert server.asked[0].headers["authorization"] == "Bearer sk-secret"
    assert server.asked[0].headers["x-team"] == "blue"
    assert "sk-secret" not in repr(target)


def test_a_server_without_a_list_of_models_is_believed_when_a_model_is_named() -> None:
    assert reached(OpenAIServer(models_status=404), model="mine").model == "mine"
    assert "answers HTTP 404" in error_of(OpenAIServer(models_status=404))


@pytest.mark.parametrize(
    ("server", "options", "words"),
    [
        (OpenAIServer(models_status=401), {}, "wants a key (HTTP 401); give it by --api-key-file"),
        (OpenAIServer(models="hello"), {}, "something else than a list of models"),
        (OpenAIServer(models={"data": []}), {}, "serves no model, by its /v1/models; name one by --model"),
        (OpenAIServer(), {"model": "x"}, "does not serve 'x'; it serves m"),
        (OpenAIServer(models_status=500), {"model": "m"}, "answers HTTP 500"),
    ],
)
def test_a_wrong_server_is_named_with_what_to_do(server: OpenAIServer, options: Any, words: str) -> None:
    assert words in error_of(server, **options)


@pytest.mark.parametrize("slashes", ["", "//"])
def test_a_socket_instead_of_a_port(tmp_path: Path, slashes: str) -> None:
    server = OpenAIServer(unix=tmp_path / "with space")

    async def scenario(running: OpenAIServer) -> None:
        target = await reach(running.url.replace("unix:", f"unix:{slashes}"))
        answer = await target.ask({"model": "m", "messages": [{"content": "a"}], "max_tokens": 3, "stream": True})
        assert (answer.events, answer.complete) == (3, True)

    run_with(server, scenario)
    assert [(each.path, each.headers["host"]) for each in server.asked] == [
        ("/v1/models", "localhost"),
        ("/v1/chat/completions", "localhost"),
    ]


def test_no_socket_there(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"no answer from unix:.* \(No such file or directory\); is the server up"):
        asyncio.run(reach(f"unix:{tmp_path}/none"))


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(
        TargetError, match=r"no answer from http://127.0.0.1:\d+ \(connection refused\); is the server up, and there\?"
    ):
        asyncio.run(reach(f"http://127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:8000", "is not a server's address; write http://HOST:PORT"),
        ("http://", "is not a server's address"),
        ("http://host:99999", "is not a server's address"),
        ("http://[::1", "is not a server's address"),
        ("http://host/?version=1", "is not a server's address"),
        ("http://user:pw@host", "holds a user or password"),
        ("unix:vllm.sock", "has no absolute path; write for example unix:/run/vllm.sock"),
    ],
)
def test_what_is_no_address(url: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        asyncio.run(reach(url))
    assert words in str(raised.value)
    assert "pw" not in str(raised.value)


def test_a_header_that_would_split_the_request_is_refused() -> None:
    with pytest.raises(ConfigError, match="'Authorization' holds characters"):
        asyncio.run(reach("http://127.0.0.1:1", api_key="key\r\nX-Other: 1"))


@pytest.fixture(scope="session")
def tls_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    self_signed(folder)
    return folder


def contexts(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_tls_with_an_authority_of_its_own(tls_pair: Path) -> None:
    server = OpenAIServer(tls=contexts(tls_pair))
    assert reached(server, ca_file=tls_pair / "cert.pem").url.startswith("https://")
    assert reached(OpenAIServer(tls=contexts(tls_pair)), insecure=True).model == "m"


def test_a_certificate_of_nobody_we_trust_is_named(tls_pair: Path) -> None:
    assert "its certificate is not trusted: self-signed certificate" in error_of(OpenAIServer(tls=contexts(tls_pair)))


def test_an_authority_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing\n")
    with pytest.raises(PrefillwatchError, match="no certificates of authorities can be read"):
        asyncio.run(reach("https://127.0.0.1:1", ca_file=tmp_path / "ca.pem"))


def test_a_request_is_in_the_dialect_of_the_server() -> None:
    target = Target("http://x", "m")
    assert target.body("hi", 7) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 7,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    strict = target.speaking(Dialect(ignore_eos=False, limit_name="max_completion_tokens", usage=False))
    assert target.body("hi", 7, user="client-7")["user"] == "client-7"
    assert strict.body("hi", 7, whole=True) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_completion_tokens": 7,
    }


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(status=200), ""),
        (Answer(error="connection lost"), "connection lost"),
        (Answer(status=400, body=b'{"error":{"message":"too long"}}'), "HTTP 400: too long"),
        (Answer(status=404, body=b'{"detail":"Not Found"}'), "HTTP 404: Not Found"),
        (Answer(status=502, body=b"<html>"), "HTTP 502"),
        (Answer(status=400, body=b'{"error":"no"}'), "HTTP 400: no"),
        (Answer(status=400, body=b"[1]"), "HTTP 400"),
    ],
)
def test_why_a_request_was_refused(answer: Answer, why: str) -> None:
    assert refusal(answer) == why
