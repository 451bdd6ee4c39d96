"""The supervisor over stand-ins for its processes: starts, restarts, signals, ends. What they saw is in a journal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.kit.eventually import PATIENCE_S, eventually
from tests.kit.processes import is_alive

FAKES = Path(__file__).parents[1] / "fakes"
Entry = dict[str, Any]


class Supervised:
    """A supervisor process and the journal of the processes under it."""

    def __init__(self, folder: Path, relay: str, flags: dict[str, Any], command: list[str]) -> None:
        self.journal_path = folder / "journal"
        self.journal_path.touch()
        observer = flags.pop("observer", "observer")
        argv = [sys.executable, FAKES / "supervised.py", self.journal_path, relay, observer, json.dumps(flags)]
        argv += command
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def entries(self, event: str, role: str | None = None) -> list[Entry]:
        entries = [json.loads(line) for line in self.journal_path.read_text().splitlines()]
        return [entry for entry in entries if entry["event"] == event and role in (None, entry["role"])]

    def await_entries(self, count: int, event: str, role: str | None = None) -> list[Entry]:
        eventually(lambda: len(self.entries(event, role)) >= count)
        return self.entries(event, role)

    def await_state(self, accept: Callable[[Entry], bool]) -> Entry:
        def last() -> Entry:
            states = self.entries("control")
            return states[-1]["state"] if states else {"processes": [], "draining": False, "restarts": {}}

        eventually(lambda: accept(last()))
        return last()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def outcome(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stdout.decode(), stderr.decode()


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(relay: str = "relay", command: tuple[str, ...] = (), **flags: Any) -> Supervised:
        started.append(Supervised(tmp_path, relay, flags, list(command)))
        return started[-1]

    yield start
    for supervised in started:
        with contextlib.suppress(ProcessLookupError):
            supervised.process.kill()
        supervised.process.communicate()
        all_ended([entry["pid"] for entry in supervised.entries("start")])


def all_ended(pids: list[int]) -> None:
    eventually(lambda: not any(map(is_alive, pids)))


def refuses(address: tuple[str, int]) -> bool:
    with socket.socket() as client:
        return client.connect_ex(address) != 0


def roles(state: Entry) -> list[str]:
    return sorted(process["role"] for process in state["processes"])


def test_relays_and_one_observer_are_started_with_their_settings(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(relays=2, max_body="1MiB", windows="5s")
    relays = supervised.await_entries(2, "start", "relay")
    (observer,) = supervised.await_entries(1, "start", "observer")
    assert sorted(relay["settings"]["index"] for relay in relays) == [0, 1]
    assert {relay["settings"]["max_body"] for relay in relays} == {2**20}
    assert len(observer["settings"]["tap_fds"]) == 2
    assert observer["settings"]["analysis"]["windows"] == [5]
    state = supervised.await_state(lambda state: len(state["processes"]) == 4)
    assert roles(state) == ["observer", "relay", "relay", "supervisor"]
    assert {relay["pid"] for relay in relays} < {process["pid"] for process in state["processes"]}
    assert supervised.end() == 0


def test_a_killed_observer_comes_back_on_the_same_sockets_and_is_told_everything_again(
    supervise: Callable[..., Supervised],
) -> None:
    supervised = supervise()
    (relay,) = supervised.await_entries(1, "start", "relay")
    (first,) = supervised.await_entries(1, "start", "observer")
    asked_before = len(supervised.entries("sigusr2"))
    os.kill(first["pid"], signal.SIGKILL)
    second = supervised.await_entries(2, "start", "observer")[1]
    assert second["settings"]["tap_fds"] == first["settings"]["tap_fds"]
    state = supervised.await_state(lambda state: state["restarts"].get("observer") == 1)
    assert second["pid"] in [process["pid"] for process in state["processes"]]
    supervised.await_entries(asked_before + 1, "sigusr2", "relay")
    assert is_alive(relay["pid"])
    assert supervised.end() == 0


def test_a_killed_relay_comes_back_and_the_observer_hears_of_it(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(relays=2)
    first = supervised.await_entries(2, "start", "relay")[0]
    supervised.await_state(lambda state: len(state["processes"]) == 4)
    os.kill(first["pid"], signal.SIGKILL)
    third = supervised.await_entries(3, "start", "relay")[2]
    assert third["settings"] == first["settings"]
    state = supervised.await_state(lambda state: state["restarts"].get("relay") == 1 and len(state["processes"]) == 4)
    assert third["pid"] in [process["pid"] for process in state["processes"]]
    assert supervised.end() == 0
    _, _, stderr = supervised.outcome()
    assert f"(pid {first['pid']}) was killed by SIGKILL; it is started again in 0.1 s" in stderr


def test_relays_drain_before_the_observer_ends(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise("slow,0.5")
    supervised.await_entries(1, "start", "slow")
    supervised.await_state(lambda state: len(state["processes"]) == 3)
    assert supervised.end() == 0
    order = [
        (entry["role"], entry["event"]) for entry in map(json.loads, supervised.journal_path.read_text().splitlines())
    ]
    draining = [entry["state"]["draining"] for entry in supervised.entries("control")]
    assert draining[-1] is True
    ends = [
        place for place, told in enumerate(order) if told in (("observer", "sigterm"), ("observer", "control ended"))
    ]
    assert order.index(("slow", "sigterm")) < order.index(("slow", "end")) < ends[0]


def test_while_draining_no_new_connection_is_taken(supervise: Callable[..., Supervised]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    supervised = supervise("slow,1", listen=f"127.0.0.1:{address[1]}")
    (relay,) = supervised.await_entries(1, "start", "slow")
    socket.create_connection(address).close()
    supervised.process.terminate()
    supervised.await_entries(1, "sigterm", "slow")
    os.kill(relay["pid"], signal.SIGKILL)  # as a relay does, it lets go of its socket; ours must not keep it open
    eventually(lambda: refuses(address))
    assert supervised.process.wait(PATIENCE_S) == 0


def test_a_second_signal_cuts_the_draining_short(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise("slow,3600", drain_timeout="1h")
    supervised.await_entries(1, "start", "slow")
    supervised.process.send_signal(signal.SIGINT)
    supervised.await_entries(1, "sigterm", "slow")
    time.sleep(0.4)  # a second one right behind the first is taken for the same
    assert supervised.end(signal.SIGINT) == 0
    assert not supervised.entries("end", "slow")


def test_a_relay_that_outlives_its_limit_is_killed(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise("slow,3600", drain_timeout="0")
    supervised.await_entries(1, "start", "slow")
    assert supervised.end() == 0
    assert not supervised.entries("end", "slow")


def test_nobody_outlives_a_killed_supervisor(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(relays=2, command=("sleep", "3600"))
    supervised.await_entries(3, "start")
    state = supervised.await_state(lambda state: len(state["processes"]) == 5)
    pids = [process["pid"] for process in state["processes"] if process["role"] != "supervisor"]
    supervised.end(signal.SIGKILL)
    eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_what_the_command_started_does_not_outlive_a_killed_supervisor(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    script = f"sleep 3600 & echo $! > {tmp_path}/left; dirname $PREFILLWATCH_SOCKET > {tmp_path}/folder; wait"
    supervised = supervise(command=("sh", "-c", script))
    eventually(lambda: (tmp_path / "folder").exists() and bool((tmp_path / "folder").read_text()))
    left, folder = int((tmp_path / "left").read_text()), Path((tmp_path / "folder").read_text().strip())
    assert is_alive(left)
    assert folder.is_dir()
    supervised.end(signal.SIGKILL)
    eventually(lambda: not is_alive(left) and not folder.exists())


def test_relays_that_fail_from_the_beginning_end_it(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise("failing,3")
    code, _, stderr = supervised.outcome()
    assert code == 1
    assert "StartError: the relay processes do not stay up" in stderr
    assert "ended with code 3" in stderr
    assert stderr.count("it is started again") == 5


def test_signals_count_like_exit_codes_and_are_explained(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(f"dying,{signal.SIGSYS:d}")
    code, _, stderr = supervised.outcome()
    assert code == 1
    assert "StartError: the relay processes do not stay up" in stderr
    assert stderr.count("was killed by SIGSYS") == 5
    assert "a system call that it needs is forbidden here: allow all of @system-service" in stderr
    assert " ERROR prefillwatch: relay 0 " in stderr
    assert "(failed 5 times in a row)" in stderr


# What is answered at the door
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def addresses() -> dict[str, str]:
    """Ports that are free now."""
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return {"listen": f"127.0.0.1:{one.getsockname()[1]}", "admin": f"127.0.0.1:{other.getsockname()[1]}"}


def ask(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """0 while nobody answers."""
    try:
        answer = httpx.get(f"http://{address}{path}", timeout=PATIENCE_S, trust_env=False)
    except httpx.TransportError:
        return 0, {}
    return answer.status_code, answer.json()


def test_a_mute_relay_is_told_and_killed(supervise: Callable[..., Supervised], addresses: dict[str, str]) -> None:
    supervised = supervise(mute_limit="5s", **addresses)
    (relay,) = supervised.await_entries(1, "start", "relay")
    admin = addresses["admin"]
    eventually(lambda: "health check" in ask(admin, "/readyz")[1].get("reason", ""))  # of upstream: relays are fine
    supervised.await_state(lambda state: state.get("relays") == [{"index": 0, "state": "serving"}])
    os.kill(relay["pid"], signal.SIGSTOP)
    eventually(lambda: "relay 0 is mute: no sign of life" in ask(admin, "/readyz")[1].get("reason", ""))
    assert ask(admin, "/healthz") == (200, {"status": "ok"})
    supervised.await_state(lambda state: state.get("relays") == [{"index": 0, "state": "mute"}])
    supervised.await_entries(2, "start", "relay")
    supervised.await_state(lambda state: state["restarts"].get("relay") == 1)
    eventually(lambda: "health check" in ask(admin, "/readyz")[1].get("reason", ""))
    assert supervised.end() == 0
    _, _, stderr = supervised.outcome()
    assert f"relay 0 (pid {relay['pid']}) was killed by SIGKILL by us: relay 0 is mute: no sign of life for 5" in stderr
    assert "relay 0 serves again" not in stderr


def test_clients_of_a_relay_that_is_away_are_for_the_others(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(relays=2, mute_limit="0")
    first, second = (entry["pid"] for entry in supervised.await_entries(2, "start", "relay"))
    supervised.await_state(lambda state: [each["state"] for each in state.get("relays", [])] == ["serving"] * 2)

    def covers() -> int:
        told = [entry["listeners"] for entry in supervised.entries("cover") if entry["pid"] == second]
        return told[-1] if told else 0

    eventually(lambda: covers() == 0)
    os.kill(first, signal.SIGSTOP)
    eventually(lambda: covers() == 1)
    os.kill(first, signal.SIGCONT)
    eventually(lambda: covers() == 0)
    assert supervised.end() == 0


def test_an_observer_that_cannot_live_is_said_at_once_and_ends_nothing(
    supervise: Callable[..., Supervised], addresses: dict[str, str]
) -> None:
    supervised = supervise(**addresses, observer=f"dying,{signal.SIGSYS:d}")
    admin = addresses["admin"]
    eventually(lambda: "was killed by SIGSYS" in ask(admin, "/metrics")[1].get("error", ""))
    status, answer = ask(admin, "/metrics")
    assert status == 503
    assert answer["error"].startswith("there is no observer: it (pid ")
    status, answer = ask(admin, "/healthz")
    assert (status, answer["status"]) == (200, "ok")
    eventually(lambda: "was killed by SIGSYS" in ask(admin, "/healthz")[1].get("observer", ""))
    (relay,) = supervised.entries("start", "relay")
    assert is_alive(relay["pid"])
    assert supervised.end() == 0


def test_silent_connections_do_not_take_the_admin_listener(
    supervise: Callable[..., Supervised], addresses: dict[str, str]
) -> None:
    supervised = supervise(**addresses)
    admin = addresses["admin"]
    eventually(lambda: ask(admin, "/healthz")[0] == 200)
    host, _, port = admin.partition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection((host, int(port))))
        assert ask(admin, "/healthz") == (200, {"status": "ok"})
        assert ask(admin, "/readyz")[0] == 503  # there is no upstream
    assert supervised.end() == 0


def test_hangup_is_ignored(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise()
    supervised.await_entries(2, "start")
    supervised.process.send_signal(signal.SIGHUP)
    os.kill(supervised.entries("start", "relay")[0]["pid"], signal.SIGKILL)  # still watching
    supervised.await_entries(3, "start")
    assert supervised.end() == 0


def test_quit_ends_everything_at_once(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise()
    pids = [entry["pid"] for entry in supervised.await_entries(2, "start")]
    assert supervised.end(signal.SIGQUIT) == -signal.SIGQUIT
    eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_the_output_and_exit_code_of_the_command_pass_through(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(command=("sh", "-c", r"printf 'a\0b\377'; printf 'err' >&2; exit 7"))
    supervised.process.wait(PATIENCE_S)
    stdout, stderr = supervised.process.communicate()
    assert supervised.process.returncode == 7
    assert stdout == b"a\0b\xff"
    assert b"err" in stderr
    assert b"sh ended with code 7; prefillwatch ends with it" in stderr


def test_a_command_that_dies_by_a_signal_gives_the_shells_code(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(command=("sh", "-c", "kill -SEGV $$"))
    code, _, stderr = supervised.outcome()
    assert code == 128 + signal.SIGSEGV
    assert "was killed by SIGSEGV" in stderr


def test_the_command_gets_the_signal_after_the_relays_have_drained(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    script = (
        f"trap 'cp {tmp_path}/journal {tmp_path}/then; exit 5' INT; touch {tmp_path}/up; while :; do sleep 0.05; done"
    )
    supervised = supervise("slow,0.5", command=("sh", "-c", script))
    supervised.await_entries(2, "start")
    eventually((tmp_path / "up").exists)
    assert supervised.end(signal.SIGINT) == 5
    seen = [json.loads(line) for line in (tmp_path / "then").read_text().splitlines()]
    assert ("slow", "end") in [(entry["role"], entry["event"]) for entry in seen]
    assert ("observer", "sigterm") not in [(entry["role"], entry["event"]) for entry in seen]


def test_other_signals_go_to_the_command(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    script = f"trap 'exit 9' USR1; trap 'exit 8' HUP; touch {tmp_path}/up; while :; do sleep 0.05; done"
    supervised = supervise(command=("sh", "-c", script))
    eventually((tmp_path / "up").exists)
    assert supervised.end(signal.SIGUSR1) == 9


def test_a_command_that_does_not_end_is_killed(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    script = f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    supervised = supervise(command=("sh", "-c", script), stop_timeout="100ms", drain_timeout="0")
    eventually((tmp_path / "up").exists)
    assert supervised.end() == 128 + signal.SIGKILL


def test_what_the_command_leaves_behind_is_ended_too(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    script = f"sleep 3600 & echo $! > {tmp_path}/left; exit 0"
    supervised = supervise(command=("sh", "-c", script))
    assert supervised.outcome()[0] == 0
    assert not is_alive(int((tmp_path / "left").read_text()))


def test_a_command_that_is_not_there_is_named(supervise: Callable[..., Supervised]) -> None:
    supervised = supervise(command=("no-such-server",))
    _, _, stderr = supervised.outcome()
    assert "CommandError: cannot start 'no-such-server': No such file or directory; is it installed" in stderr


def test_the_supervisor_loads_no_numpy() -> None:
    """It has no arrays to work on, and must live where a filter of system calls kills what numpy does at import."""
    script = "import sys, prefillwatch.commands.serve, prefillwatch.supervision.supervisor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "prefillwatch.supervision.supervisor" in loaded
    assert "numpy" not in loaded
