"""Around nginx's tests: what they print is read, servers are moved, every reason is in use. The tests are elsewhere."""

from __future__ import annotations

import importlib.util
import re
import socket
from importlib.machinery import SourceFileLoader
from types import ModuleType

import pytest
from tests.foreign.http.nginx_differences import DIFFERENCES, KINDS
from tests.foreign.http.nginx_suite import STANDINS, Difference, Point, differences, points

ALONE = "1..5\nok 1 - head\nok 2\nnot ok 3 - x # TODO not yet\nok 4 # skip no ipv6\nok 5 - no alerts\n"


def test_sub_tests_are_read_by_number() -> None:
    assert points(ALONE) == {
        1: Point(True, "head", False),
        2: Point(True, "", False),
        3: Point(False, "x", True),
        4: Point(True, "", True),
        5: Point(True, "no alerts", False),
    }


def test_what_fails_and_what_was_not_reached_differ() -> None:
    behind = points("1..5\nnot ok 1 - head\nok 2\n")
    found = list(differences("proxy.t", points(ALONE), behind))
    assert found == [Difference("proxy.t", 1, "head", None), Difference("proxy.t", 5, "no alerts", None)]


def test_a_reason_is_found_by_the_whole_name() -> None:
    alone = points("ok 1 - tracer\nok 2 - trace\n")
    assert [found.kind for found in differences("http_method.t", alone, {})] == [None, "connection"]


def test_every_kind_of_reason_is_in_use() -> None:
    assert {kind for reasons in DIFFERENCES.values() for _, kind in reasons} == set(KINDS)


@pytest.fixture
def standin() -> ModuleType:
    loader = SourceFileLoader("standin_of_nginx", str(STANDINS / "nginx"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class NoRelays:
    """Where listeners would go, without anything that listens."""

    def move(self, host: str, port: int) -> str:
        return f"moved-{host}-{port}"


def test_plain_listeners_move_and_others_stay(standin: ModuleType) -> None:
    config = """
    stream { server { listen 127.0.0.1:1; } }  # listen 127.0.0.1:2; and {
    http {
        log_format x "listen 127.0.0.1:3; {" '${y}' ${z};
        server { listen 127.0.0.1:4 default_server sndbuf=32k; listen [::1]:5; listen 6; listen unix:/x.sock; }
        server { listen 127.0.0.1:7; location / { proxy_pass http://127.0.0.1:4; } }
        server { listen 127.0.0.1:7 ssl; listen 127.0.0.1:8 http2; listen 127.0.0.1:10-12; }
    }
    """
    moved = standin.move(config, NoRelays())
    places = {
        "127.0.0.1:4 default": "moved-127.0.0.1-4 default",
        "[::1]:5;": "moved-::1-5;",
        " 6;": " moved-0.0.0.0-6;",
    }
    for before, after in places.items():
        config = config.replace(before, after)
    assert moved == config


def test_a_port_stays_the_same_on_another_address(standin: ModuleType) -> None:
    assert standin.elsewhere("127.0.0.1", 8080) == ("127.7.7.1", 8080)
    host, port = standin.elsewhere("0.0.0.0", 8080)
    assert (host, port != 8080) == ("127.0.0.1", True)
    with socket.create_server((host, port)):
        assert re.fullmatch(r"127\.0\.0\.1:\d+", standin.written(host, port))
