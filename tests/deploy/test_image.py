"""The Dockerfile: what can be told without building it; that is done in tests/sandbox/test_image.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.deploy.commands import accept
from tests.deploy.tools import RefusedError, run

from prefillwatch.settings.sources import load

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"


def instructions() -> list[list[tuple[str, str]]]:
    """(keyword, rest) of each line, by stage; what stands before the first FROM is left out."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = [line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    stages: list[list[tuple[str, str]]] = []
    for keyword, rest in lines:
        if keyword == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((keyword, " ".join(rest.split())))
    return stages


def last_stage() -> dict[str, str]:
    """The last of each instruction in the stage that is shipped."""
    return dict(instructions()[-1])


def environment() -> dict[str, str]:
    return {name: value.strip('"') for name, _, value in (item.partition("=") for item in last_stage()["ENV"].split())}


def test_hadolint_finds_nothing() -> None:
    run("hadolint", DOCKERFILE)


def test_hadolint_would_find_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.read_text().replace("WORKDIR /src", "WORKDIR src"))
    with pytest.raises(RefusedError, match="DL3000"):
        run("hadolint", tmp_path / "Dockerfile")


def test_two_stages_and_the_second_only_copies_the_environment() -> None:
    build, shipped = instructions()
    assert "pip" in dict(build)["RUN"]
    copies = [rest for keyword, rest in shipped if keyword == "COPY"]
    assert copies == ["--from=build /opt/prefillwatch /opt/prefillwatch"]
    assert "RUN" not in dict(shipped)
    base = dict(build)["FROM"].split()[0]
    assert base == dict(shipped)["FROM"], "an environment fits only the Python it was made with"


def test_the_base_is_a_release_and_can_be_pinned_to_its_bytes() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE))
    assert re.fullmatch(r"\d+\.\d+", arguments["PYTHON"])
    assert re.fullmatch(r"python:\$\{PYTHON\}-slim-[a-z]+", arguments["BASE"]), "a tag with Debian's release in it"
    assert {dict(stage)["FROM"].split()[0] for stage in instructions()} == {"${BASE}"}


def test_nothing_is_installed_but_what_is_written_down() -> None:
    (first, last) = (rest for keyword, rest in instructions()[0] if keyword == "RUN" and "pip" in rest)
    locks = re.findall(r"pip install ([^&]*)", first)
    assert [lock.split()[-1] for lock in locks] == ["deploy/${LOCK}", "deploy/build.lock"]
    assert dict(instructions()[0])["ARG"] == "LOCK=requirements.lock"
    assert all("--require-hashes" in lock and "--only-binary :all:" in lock for lock in locks)
    for command in re.findall(r"pip (?:wheel|install) ([^&]*)", last):
        assert "--no-deps" in command


def test_everything_that_is_copied_is_there_and_not_ignored() -> None:
    ignored = (ROOT / "deploy/Dockerfile.dockerignore").read_text().split("\n")
    sources = [source for keyword, rest in instructions()[0] if keyword == "COPY" for source in rest.split()[:-1]]
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source.partition('/')[0]}" in ignored
    assert {"exporter", "grafana", "alerts", "deploy", "pyproject.toml"} <= set(sources)


def test_runs_as_a_number_that_is_not_root() -> None:
    user, group = map(int, last_stage()["USER"].split(":"))
    assert user > 0
    assert group > 0


def test_starts_in_exec_form_so_that_signals_arrive() -> None:
    stage = last_stage()
    assert json.loads(stage["ENTRYPOINT"]) == ["prefillwatch"]
    (command,) = json.loads(stage["CMD"])
    accept(command)
    assert stage["STOPSIGNAL"] == "SIGTERM"


def test_asks_for_its_health_with_our_own_command() -> None:
    _, _, check = last_stage()["HEALTHCHECK"].partition(" CMD ")
    program, command = json.loads(check)
    assert program == "prefillwatch"
    accept(command)


def test_environment_holds_settings_that_we_have() -> None:
    variables = environment()
    settings = load({}, variables)
    assert {settings.listen.host, settings.admin.host} == {"::"}, "of both versions of IP"
    assert last_stage()["EXPOSE"].split() == [str(settings.listen.port), str(settings.admin.port)]
    assert variables["PYTHONUNBUFFERED"] == "1"
    assert variables["PATH"].startswith("/opt/prefillwatch/bin:")
