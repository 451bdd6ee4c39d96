"""The flags of vLLM that our pages, alerts and deployment files name are flags of the real one. Starts no engine."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest
import yaml
from tests.real.engine import ROOT, VENV, server_environment

from prefillwatch.cli import main

RUNBOOKS = sorted((ROOT / "alerts/runbooks").glob("*.md"))
#: Commands of ours whose flags a runbook may name too. Those of the simulator are named as in vLLM on purpose.
OURS = ("serve", "run", "check", "healthcheck")
LIST_FLAGS = """
import json
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
actions = make_arg_parser(FlexibleArgumentParser())._option_string_actions
print(json.dumps({flag: [str(choice) for choice in action.choices or ()] for flag, action in actions.items()}))
"""
#: ``--flag`` or ``--flag value`` in code; a value in capitals stands for one of the reader's own.
_NAMED = re.compile(r"`(--[a-z][a-z0-9-]*)(?:[ =]([a-z][a-z0-9_]*))?[^`]*`")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


@pytest.fixture(scope="module")
def vllm() -> dict[str, list[str]]:
    """Every flag of the API server, with the values it takes where there is a list of them."""
    command = [str(VENV / "bin/python"), "-c", LIST_FLAGS]
    done = subprocess.run(command, env=server_environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    flags: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return flags


def ours() -> set[str]:
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in OURS]
    return {option for command in commands if command for parameter in command.params for option in parameter.opts}


def test_flags_in_runbooks_exist(vllm: dict[str, list[str]]) -> None:
    named = {flag for page in RUNBOOKS for flag, _ in _NAMED.findall(page.read_text())}
    assert {"--max-num-batched-tokens", "--max-num-seqs", "--kv-cache-dtype"} <= named
    assert named - vllm.keys() - ours() == set()


def test_values_in_runbooks_are_ones_that_vllm_takes(vllm: dict[str, list[str]]) -> None:
    given = [(flag, value) for page in RUNBOOKS for flag, value in _NAMED.findall(page.read_text()) if value]
    assert ("--kv-cache-dtype", "fp8") in given
    assert [(flag, value) for flag, value in given if vllm.get(flag) and value not in vllm[flag]] == []


def test_flags_in_alerts_and_dashboards_exist(vllm: dict[str, list[str]]) -> None:
    paths = [*(ROOT / "alerts/rules").glob("*.yml"), *(ROOT / "grafana/generator").glob("*.py")]
    named = {flag for path in paths for flag in _FLAG.findall(path.read_text())}
    assert "--max-num-batched-tokens" in named
    assert named - vllm.keys() - ours() == set()


def test_commands_that_we_deploy_vllm_with_are_ones_it_takes(vllm: dict[str, list[str]]) -> None:
    named = set(_deployed())
    assert {"--model", "--host", "--port", "--shutdown-timeout"} <= named
    assert named - vllm.keys() == set()


def _deployed() -> Iterator[str]:
    compose = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())
    yield from _flags(compose["services"]["vllm"]["command"])
    kubernetes = ROOT / "deploy/kubernetes"
    deployment = next(yaml.safe_load_all((kubernetes / "example/vllm.yaml").read_text()))
    yield from _flags(deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    yield from _flags(step["value"] for step in yaml.safe_load((kubernetes / "sidecar/loopback.yaml").read_text()))
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").rglob("README.md")):
        yield from _started_in(page)


def _flags(arguments: Iterable[str]) -> Iterator[str]:
    yield from (flag for argument in arguments for flag in _FLAG.findall(argument))


def _started_in(page: Path) -> Iterator[str]:
    for line in page.read_text().splitlines():
        _, started, arguments = line.partition("vllm serve ")
        if started:
            yield from _FLAG.findall(arguments)
