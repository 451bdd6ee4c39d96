"""The plugin inside a real vLLM: its figures are the engine's own, a sidecar hears of every step, and no fault of it or
of a sidecar does harm.

The plugin is not installed into vLLM's environment: a folder with the metadata of a distribution, first on PYTHONPATH,
lets vLLM find the entry point that is in our pyproject.toml.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.real.client import Answer, ask
from tests.real.engine import MODEL_DIR, ROOT, Engine, server_command
from tests.real.four_endpoints import PATHS, request
from tests.real.record_workload import WORDS
from tests.real.sidecar import Metrics, Sidecar

from prefillwatch.contract.buckets import STEP_BUCKETS
from prefillwatch.doctor.examine import Report, examine
from prefillwatch.doctor.finding import Seen
from prefillwatch.doctor.thresholds import FEWEST_BESIDE
from prefillwatch.doctor.watch import Access, Watcher, address_of
from prefillwatch.engine.plugin.histograms import prefill_bucket

STEP = "prefillwatch_engine_step_seconds"
GAP = "prefillwatch_engine_inter_token_latency_seconds"
VLLMS_GAP = "vllm:inter_token_latency_seconds"
CHAT = PATHS["chat_completions"]
PATIENCE_S = 60.0
ITERATION_DETAILS = "enable-logging-iteration-details"
FAULTS = """
from prefillwatch.engine.plugin import steps


def install():
    def read(self, taken_ns, scheduler, iteration):
        raise RuntimeError("a fault on purpose")

    steps.StepReader.read = read
"""


def site(folder: Path, faults: bool = False) -> Path:
    """A folder for PYTHONPATH in which vLLM finds our plugin."""
    own = re.search(r'entry-points\."(vllm\.\w+)"\]\n(\w+) = "(.+)"', (ROOT / "pyproject.toml").read_text())
    assert own is not None
    points = f"[{own[1]}]\n{own[2]} = {own[3]}\n"
    if faults:
        points += "[vllm.general_plugins]\nprefillwatch_faults = prefillwatch_faults:install\n"
        (folder / "prefillwatch_faults.py").write_text(FAULTS)
    # The `vllm` command wants a distribution of that name, which the CPU build is not.
    for name, version, text in (("prefillwatch", "0", points), ("vllm", "0.32.0+cpu", "")):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(text)
    return folder


@contextmanager
def vllm(
    folder: Path,
    *flags: str,
    socket: Path | None = None,
    faults: bool = False,
    command: Callable[[int, Sequence[str]], list[str]] = server_command,
) -> Iterator[Engine]:
    """A vLLM with the plugin; ``socket`` is where the plugin looks for a sidecar."""
    (folder / "site").mkdir(parents=True)
    environment = {"PYTHONPATH": f"{site(folder / 'site', faults)}:{ROOT / 'exporter'}"}
    if socket is not None:
        environment["PREFILLWATCH_SOCKET"] = str(socket)
    with Engine(folder, flags, command=command, environment=environment) as engine:
        yield engine


async def mixed_load(port: int, prompts: Sequence[int] = (300, 700, 2500), victims: int = 3) -> list[Answer]:
    """Some decode all the time; prompts of these sizes come one after another."""
    calls = [chat(port, 12, 120) for _ in range(victims)]
    tasks = [asyncio.create_task(call) for call in calls]
    for size in prompts:
        await asyncio.sleep(0.3)
        tasks.append(asyncio.create_task(chat(port, size, 4)))
    return await asyncio.gather(*tasks)


async def chat(port: int, prompt: int, tokens: int) -> Answer:
    text = " ".join(WORDS[(index * index + prompt) % len(WORDS)] for index in range(prompt))
    return await ask(port, CHAT, request("chat_completions", stream=True, text=text, tokens=tokens), limit_seconds=120)


def run_load(port: int, **options: Any) -> None:
    answers = asyncio.run(mixed_load(port, **options))
    assert {(answer.status, answer.complete) for answer in answers} == {(200, True)}


def settled(url: str) -> Metrics:
    """vLLM's page when the plugin's thread has counted what vLLM's own metrics count at once."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        page = Metrics.read(f"{url}/metrics")
        if page.total(f"{GAP}_count") == page.total(f"{VLLMS_GAP}_count"):
            return page
        assert time.monotonic() < deadline, "the plugin counts other gaps than vLLM"
        time.sleep(0.1)


# --- Alone ---


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("link") / "engine.sock"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, socket: Path) -> Iterator[Engine]:
    """Looks for a sidecar at ``socket``, where none is until a test starts one."""
    with vllm(tmp_path_factory.mktemp("plugin"), socket=socket) as engine:
        yield engine


def steps_of(engine: Engine, name: str) -> list[Any]:
    return [json.loads(line) for line in (engine.log_dir / name).read_text().splitlines()]


def test_gaps_are_vllms_own_by_what_rode_in_the_step(engine: Engine) -> None:
    run_load(engine.port)
    page = settled(engine.url)
    truth: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for step in steps_of(engine, "iterations.jsonl"):
        if step.get("itl"):
            truth[prefill_bucket(step["prefill_tokens"])] += len(step["itl"])
            seconds[prefill_bucket(step["prefill_tokens"])] += sum(step["itl"])
    assert set(truth) > {"none"}
    for bucket, count in truth.items():
        assert page.value(f"{GAP}_count", step_prefill_tokens=bucket, model_name="tiny", engine="0") == count
        assert page.value(f"{GAP}_sum", step_prefill_tokens=bucket) == pytest.approx(seconds[bucket], abs=1e-5 * count)
    assert page.total(f"{GAP}_sum") == pytest.approx(page.total(f"{VLLMS_GAP}_sum"))


def test_step_times_are_the_engines_own(engine: Engine) -> None:
    """Against the times at which the engine process had the output of each step at hand."""
    run_load(engine.port)
    page = settled(engine.url)
    schedule = steps_of(engine, "schedule.jsonl")
    count: Counter[str] = Counter()
    truth: Counter[str] = Counter()
    done_ns = 0
    for step in schedule:
        bucket = prefill_bucket(sum(tokens for _, tokens, kind, _ in step["requests"] if kind == "p"))
        count[bucket] += 1
        # After a pause the step alone; else since the output before, with what the engine does in between.
        paused = step["scheduled_ns"] - done_ns > 100_000_000
        truth[bucket] += (step["done_ns"] - (step["scheduled_ns"] if paused else done_ns)) / 1e9
        done_ns = step["done_ns"]
    for bucket in count:
        assert page.value(f"{STEP}_count", step_prefill_tokens=bucket) == count[bucket]
        ours = page.value(f"{STEP}_sum", step_prefill_tokens=bucket)
        assert ours == pytest.approx(truth[bucket], rel=0.02, abs=0.005 * count[bucket] + 0.02)


def test_no_series_of_creation_times(engine: Engine) -> None:
    names = {name for name, _ in Metrics.read(f"{engine.url}/metrics").samples}
    assert not [name for name in names if name.startswith("prefillwatch_") and name.endswith("_created")]


def test_doctor_tells_the_gaps_of_steps_with_prompts_from_the_others(engine: Engine) -> None:
    async def watch() -> Report:
        enough, looked = asyncio.Event(), asyncio.Event()
        watcher = Watcher(address_of(engine.url), Access())
        watching = asyncio.create_task(watcher.watch(PATIENCE_S * 2, enough, lambda left: looked.set()))
        await looked.wait()
        readers = [asyncio.create_task(chat(engine.port, 12, 2000)) for _ in range(8)]
        before = Metrics.read(f"{engine.url}/metrics")
        for number in itertools.count():  # every step of a long prompt makes all readers wait
            await chat(engine.port, 2000 + number, 4)
            since = Metrics.read(f"{engine.url}/metrics").since(before)
            if sum(by_tokens(since, f"{GAP}_count").values()) >= 2 * FEWEST_BESIDE:
                break
        enough.set()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        return examine(await watching)

    report = asyncio.run(asyncio.wait_for(watch(), 2 * PATIENCE_S))
    pauses = next(each for each in report.findings if each.symptom == "streams_pause")
    assert pauses.seen is Seen.YES
    assert "with prompts in their engine step were above" in pauses.words
    assert "p99 gap by prompt tokens in the step: no prompt " in pauses.words
    assert pauses.numbers["gaps_beside_none"]
    assert pauses.unknown == "which requests they were"
    assert "plugin" not in report.would_tell


# --- With a sidecar ---


def by_tokens(page: Metrics, name: str) -> dict[str, float]:
    """Steps that carried prompts, by how much."""
    counts = {bucket: page.total(name, step_prefill_tokens=bucket) for bucket in STEP_BUCKETS[1:]}
    return {bucket: count for bucket, count in counts.items() if count}


def sidecar_at(engine: Engine, socket: Path, folder: Path) -> Sidecar:
    return Sidecar(folder / "serve.log", ("serve", f"--upstream={engine.url}", f"--engine-socket={socket}"))


def test_a_sidecar_hears_of_every_step_and_takes_gaps_apart(engine: Engine, socket: Path, tmp_path: Path) -> None:
    with sidecar_at(engine, socket, tmp_path) as sidecar:
        run_load(sidecar.port, prompts=())  # the plugin finds the sidecar with the first of these steps
        eventually(lambda: sidecar.metrics().total("prefillwatch_engine_links") == 1, "the plugin does not connect")
        before, told = settled(engine.url), sidecar.metrics()
        run_load(sidecar.port)
        steps = settled(engine.url).since(before).total(f"{STEP}_count")
        name = "prefillwatch_engine_link_steps_total"
        eventually(lambda: sidecar.metrics().since(told).total(name) == steps, "steps are missing")
        theirs = by_tokens(settled(engine.url).since(before), f"{STEP}_count")
        ours = "prefillwatch_step_seconds_count"
        eventually(  # on a starved machine a step may be told after the timeline has gone on without it
            lambda: abs(sum(by_tokens(sidecar.metrics().since(told), ours).values()) - sum(theirs.values())) <= 2,
            "our timeline has other steps",
        )
        page = sidecar.metrics()
        assert page.since(told).total("prefillwatch_engine_link_dropped_total") == 0
        parts = "prefillwatch_inter_token_latency_part_p99_seconds"
        assert page.value(parts, window="1m", part="engine") > 0
        p99 = page.value("prefillwatch_inter_token_latency_p99_seconds", window="1m", population="all", model="tiny")
        assert page.total(parts, window="1m") == pytest.approx(p99)


def test_a_sidecar_that_goes_away_does_no_harm_and_another_is_found(
    engine: Engine, socket: Path, tmp_path: Path
) -> None:
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with sidecar_at(engine, socket, folder) as sidecar:

            def connected(sidecar: Sidecar = sidecar) -> bool:
                asyncio.run(chat(sidecar.port, 12, 4))
                return sidecar.metrics().total("prefillwatch_engine_links") == 1

            eventually(connected, "the plugin does not find the sidecar")
        run_load(engine.port, prompts=())
    settled(engine.url)


# --- Faults, and several API servers ---


def serve_command(port: int, flags: Sequence[str] = ()) -> list[str]:
    """By way of the `vllm` command, which alone starts several API servers."""
    python, _, _, _, *rest = server_command(port, flags)
    return [python, "-m", "vllm.entrypoints.cli.main", "serve", str(MODEL_DIR), *rest]


@pytest.fixture(scope="module")
def two_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    """One with faults, one with two API servers. They start side by side, since most of a start is one thread's."""
    faulty, several = tmp_path_factory.mktemp("faulty"), tmp_path_factory.mktemp("several")
    none = faulty / "a-file"
    none.write_text("")
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        flag = f"--no-{ITERATION_DETAILS}"
        starts = [
            pool.submit(stack.enter_context, vllm(faulty / "vllm", flag, socket=none, faults=True)),
            pool.submit(stack.enter_context, vllm(several / "vllm", "--api-server-count=2", command=serve_command)),
        ]
        yield starts[0].result(), starts[1].result()


def test_errors_of_ours_and_a_socket_that_is_none_do_no_harm(two_engines: tuple[Engine, Engine]) -> None:
    """The flag is missing too, which is said."""
    flag, engine = ITERATION_DETAILS, two_engines[0]
    run_load(engine.port)
    page = Metrics.read(f"{engine.url}/metrics")
    log = engine.log_path.read_text()
    assert page.total(f"{VLLMS_GAP}_count") > 300
    assert page.total(f"{GAP}_count") == 0
    assert log.count(f"--{flag}") == 1
    assert log.count("prefillwatch cannot read") == 1
    assert "on purpose" not in log
    assert "Traceback" not in log


def test_two_api_servers(two_engines: tuple[Engine, Engine]) -> None:
    engine = two_engines[1]
    run_load(engine.port)
    run_load(engine.port)
    page = settled(engine.url)
    steps = len(steps_of(engine, "schedule.jsonl"))
    assert page.total(f"{STEP}_count") == steps
    assert page.total(f"{GAP}_sum") == pytest.approx(page.total(f"{VLLMS_GAP}_sum"))
    assert not page.has(f"{STEP}_count", step_prefill_tokens="unknown")
    assert page.total(f"{STEP}_count", step_prefill_tokens="512-2k") > 0
