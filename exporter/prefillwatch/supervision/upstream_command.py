"""The command that ``run`` starts: which port it listens on, and how it is given its port. Pure but for `free_port`."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from prefillwatch.errors import ConfigError
from prefillwatch.settings.addresses import UNIX

PORT_PLACEHOLDER: Final = "{port}"
_LOOPBACK: Final = "127.0.0.1"
_EVERYWHERE: Final = {"0.0.0.0": _LOOPBACK, "::": "[::1]", "": _LOOPBACK}  # noqa: S104 (nothing is bound here)
#: Programs and modules that take --host and --port.
_SERVERS: Final = ("vllm", "sglang", "llama-server", "llama_cpp")


@dataclass(frozen=True, slots=True)
class UpstreamCommand:
    """What to start, and where it will answer."""

    argv: tuple[str, ...]
    upstream: str
    api_key: str | None = None  # from its own --api-key, so that our scrapes may use it

    @property
    def name(self) -> str:
        """The command in a word or two, for messages."""
        words = [PurePath(self.argv[0]).name, *self.argv[1:2]]
        return " ".join(word for word in words if not word.startswith("-"))


def prepare(
    argv: Sequence[str],
    upstream: str | None,
    free_port: Callable[[], int],
    held_port: Callable[[], int] | None = None,
) -> UpstreamCommand:
    """Decide on the address of the command's server and put it into the command where it is missing.

    In this order: ``{port}`` anywhere in the command becomes a free port; an ``upstream`` that the user gave is
    believed; the command's own --port, --host and --uds are used; a command known to take --host and --port gets a
    free loopback port, by ``held_port`` where given: it may be in use already, by us and without a listener. Raises
    ConfigError for a command that cannot be given one.
    """
    if any(PORT_PLACEHOLDER in word for word in argv):
        port = free_port()
        words = tuple(word.replace(PORT_PLACEHOLDER, str(port)) for word in argv)
        return UpstreamCommand(words, upstream or _url(words, _LOOPBACK, port), _option(words, "--api-key"))
    key = _option(argv, "--api-key")
    if upstream is not None:
        return UpstreamCommand(tuple(argv), upstream, key)
    if (path := _option(argv, "--uds")) is not None:
        return UpstreamCommand(tuple(argv), UNIX + path, key)
    if (listen := _option(argv, "--listen")) is not None and _is_simulator(argv):
        return UpstreamCommand(tuple(argv), f"http://{listen}", key)
    if (port_text := _option(argv, "--port")) is not None:
        return UpstreamCommand(tuple(argv), _url(argv, _own_host(argv), _port_number(port_text)), key)
    words = _with_free_port(argv, held_port or free_port)
    return UpstreamCommand(words, _address_given_to(words), key)


def free_port() -> int:
    """A loopback port that is free right now."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _with_free_port(argv: Sequence[str], free_port: Callable[[], int]) -> tuple[str, ...]:
    if _is_simulator(argv):
        return (*argv, "--listen", f"{_LOOPBACK}:{free_port()}")
    if not _takes_port(argv):
        raise ConfigError(
            f"it is not known how to tell {PurePath(argv[0]).name!r} its port; write {PORT_PLACEHOLDER} where the port "
            f"belongs in the command, or give the address it will have with --upstream"
        )
    host = () if _option(argv, "--host") is not None else ("--host", _LOOPBACK)
    return (*argv, *host, "--port", str(free_port()))


def _address_given_to(argv: Sequence[str]) -> str:
    if _is_simulator(argv):
        return f"http://{argv[-1]}"
    return _url(argv, _own_host(argv), int(argv[-1]))


def _takes_port(argv: Sequence[str]) -> bool:
    """Whether a word of the command's beginning (program, module, script) names a server we know."""
    words = [PurePath(word).name for word in argv[:4]]
    return any(word == server or word.startswith((f"{server}.", f"{server}-")) for word in words for server in _SERVERS)


def _is_simulator(argv: Sequence[str]) -> bool:
    words = [PurePath(word).name for word in argv[:4]]
    return any(pair == ("prefillwatch", "sim") for pair in itertools.pairwise(words))


def _option(argv: Sequence[str], name: str) -> str | None:
    """The value of ``--name VALUE`` or ``--name=VALUE``; the last one wins, as in argparse."""
    found = None
    for position, word in enumerate(argv):
        if word == name and position + 1 < len(argv):
            found = argv[position + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def _own_host(argv: Sequence[str]) -> str:
    host = _option(argv, "--host") or ""
    return _EVERYWHERE.get(host, f"[{host}]" if ":" in host else host)


def _url(argv: Sequence[str], host: str, port: int) -> str:
    scheme = "https" if _option(argv, "--ssl-certfile") else "http"
    return f"{scheme}://{host}:{port}"


def _port_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise ConfigError(f"the command's --port {text!r} is no port; use 1 to 65535, or leave it out for a free one")
    return int(text)
