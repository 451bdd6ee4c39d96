"""Each file of the package has tests of its name, or a line here that says where they are.

``analysis/cost/law.py`` is tested by ``tests/analysis/cost/test_law.py`` or ``tests/analysis/test_law.py``;
``engine/plugin/steps.py`` also by ``tests/engine/test_plugin_steps.py``. A line for a folder is for those of
its files that have no tests of their name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "exporter/prefillwatch"

#: File or folder of the package: file or folder of its tests, below `tests`.
ELSEWHERE = {
    "analysis/arrays.py": "analysis/tokens/test_gaps.py",
    "analysis/cost/law.py": "analysis/cost/test_line.py",
    "analysis/cost/samples.py": "analysis/cost/test_line.py",
    "analysis/deadlines/promises.py": "scenarios/test_promises.py",
    "analysis/delays.py": "analysis/verdicts/test_incidents.py",
    "analysis/facts.py": "core",
    "analysis/figures.py": "scenarios",
    "analysis/ledger.py": "scenarios",
    "analysis/model_books.py": "core",
    "analysis/pressure": "scenarios/test_pressure.py",
    "analysis/requests/request.py": "observer/test_rest.py",
    "analysis/requests/sizing.py": "core/test_exchange.py",
    "analysis/tenants/books.py": "analysis/tenants/test_senders.py",
    "analysis/tenants/hours.py": "analysis/tenants/test_places.py",
    "analysis/verdicts": "scenarios/test_other_causes.py",
    "commands": "test_cli.py",
    "commands/doctor.py": "doctor/test_command.py",
    "commands/lab.py": "test_cli.py",
    "commands/probe.py": "lab/probe",
    "commands/record.py": "e2e/test_record.py",
    "commands/serve.py": "supervision/test_supervisor.py",
    "commands/sweep.py": "lab/sweep/test_command.py",
    "commands/trace.py": "lab/trace/test_command.py",
    "contract/buckets.py": "contract/test_limits.py",
    "contract/environment.py": "supervision/test_engine_socket.py",
    "core": "core",
    "doctor/examine.py": "doctor/test_recorded.py",
    "doctor/figures.py": "doctor/test_look.py",
    "doctor/finding.py": "doctor/test_render.py",
    "doctor/measurements.py": "doctor/test_recorded.py",
    "doctor/servers.py": "doctor/test_page.py",
    "doctor/thresholds.py": "doctor/test_trust.py",
    "doctor/watch.py": "doctor/test_command.py",
    "doctor/wording.py": "doctor/test_render.py",
    "door": "door/test_door.py",
    "engine/plugin/reporter.py": "engine/test_plugin_entry.py",
    "engine/step_report.py": "engine/test_plugin_sender.py",
    "engine/gpu_memory.py": "engine/test_nvml.py",
    "engine/upstream.py": "engine/test_poller.py",
    "errors.py": "test_cli.py",
    "export/admin_server.py": "export/test_admin.py",
    "export/flight_request.py": "export/test_admin.py",
    "export/prediction_request.py": "export/test_admin.py",
    "export/spec.py": "export/test_table.py",
    "lab/arrivals": "lab/arrivals",
    "lab/child.py": "lab/test_demo.py",
    "lab/probe": "lab/probe/test_report.py",
    "lab/report": "lab/probe/test_report.py",
    "lab/simulator": "lab/simulator",
    "lab/stopping.py": "lab/probe",
    "lab/sweep": "lab/sweep",
    "lab/trace": "lab/trace",
    "lab/vocabulary.py": "lab/test_load.py",
    "logs.py": "e2e/test_serve.py",
    "observer/api/advice.py": "scenarios/test_advice.py",
    "observer/api/state.py": "scenarios/test_frozen_now.py",
    "observer": "observer",
    "observer/metrics/upstream.py": "scenarios/test_signals.py",
    "recorder": "recorder",
    "relay/error_answers.py": "relay/test_client.py",
    "relay/deadlines.py": "relay/test_reactor.py",
    "relay/dialer.py": "relay/test_limits.py",
    "relay/errors.py": "relay/test_http_head.py",
    "relay/exchange": "relay/exchange",
    "relay/lag.py": "relay/test_main.py",
    "relay/ports.py": "relay/test_imports.py",
    "relay/relay.py": "relay/test_exchange.py",
    "relay/room.py": "relay/test_limits.py",
    "relay/sending.py": "relay/test_backpressure.py",
    "relay/unsent.py": "relay/test_limits.py",
    "relay/upstream.py": "relay/test_reuse.py",
    "report": "report/test_report.py",
    "settings": "settings/test_declared.py",
    "story/account.py": "story/test_telling.py",
    "story/blocks.py": "story/test_render.py",
    "story/pictures.py": "story/test_drawing.py",
    "supervision/relay_line.py": "relay/test_supervisor_line.py",
    "supervision/undertaker.py": "supervision/test_children.py",
    "supervision/wellbeing.py": "supervision/test_relay_watch.py",
    "units.py": "settings/test_quantities.py",
    "wire/facts.py": "wire/test_template.py",
    "wire/structure.py": "wire/test_request.py",
}


def product_files() -> list[Path]:
    own = ("__init__.py", "__main__.py")
    return [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")) if path.name not in own]


def has_tests_of_its_name(file: Path) -> bool:
    name = file.stem.removeprefix("_")
    places = [TESTS / parent for parent in file.parents]
    found = [place / f"test_{name}.py" for place in places[:2]] + [TESTS / file.parts[0] / f"test_{name}.py"]
    found += [place / f"test_{file.parent.name}_{name}.py" for place in places[1:2]]
    return any(path.exists() for path in found)


def line_of(file: Path) -> str | None:
    """The key of the file's line, or of the nearest folder's."""
    return next((str(path) for path in (file, *file.parents) if str(path) in ELSEWHERE), None)


@pytest.mark.parametrize("file", product_files(), ids=str)
def test_each_file_has_tests_of_its_name_or_a_line_that_says_where_they_are(file: Path) -> None:
    assert has_tests_of_its_name(file) or line_of(file), f"{file}: write tests/{file.parent}/test_{file.name}"


@pytest.mark.parametrize("key", ELSEWHERE)
def test_each_line_is_needed_and_leads_to_tests(key: str) -> None:
    assert any(line_of(file) == key and not has_tests_of_its_name(file) for file in product_files()), "no file needs it"
    there = TESTS / ELSEWHERE[key]
    assert there.is_file() or any(there.rglob("test_*.py")), f"there are no tests in {there}"
