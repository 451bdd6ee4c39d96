"""Runs for tests: written down as milliseconds, or played by the simulated engine in virtual time."""

from __future__ import annotations

from prefillwatch.lab.client import Answer
from prefillwatch.lab.probe.timeline import Run
from prefillwatch.lab.simulator import Arrival, Engine, SimRequest, preset_engine, run_virtual
from prefillwatch.units import MS


def answer(sent_ms: float, reads_ms: list[float], *, events: list[int] | None = None, **more: object) -> Answer:
    made = Answer(round(sent_ms * MS), 200)
    made.reads_ns = [round(read * MS) for read in reads_ms]
    made.read_events = events or [1] * len(reads_ms)
    made.events = sum(made.read_events)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def steady(start_ms: float, end_ms: float, step_ms: float = 20) -> list[float]:
    """Reads from start to end."""
    return [start_ms + i * step_ms for i in range(round((end_ms - start_ms) / step_ms) + 1)]


def run_of(
    *victims: Answer | list[Answer], injected: list[Answer], streaming_ms: float = 0.001, ended_ms: float = 0
) -> Run:
    run = Run(injected[0].prompt_tokens or 6000 if injected else 6000)
    run.victims = [victim if isinstance(victim, list) else [victim] for victim in victims]
    run.injected = injected
    run.streaming_ns = round(streaming_ms * MS)
    run.ended_ns = round(ended_ms * MS) or max(read for v in run.victims for a in v for read in a.reads_ns)
    return run


def virtual_run(
    preset: str,
    prompts: int,
    *,
    chunked: bool = True,
    prompt_tokens: int = 6000,
    victims: int = 6,
    warmup_ms: int = 3000,
    recovery_ms: int = 5000,
) -> Run:
    """The experiment on a simulated engine."""
    engine = Engine(preset_engine(preset, enable_chunked_prefill=chunked))
    arrivals = [Arrival(i * 3 * MS, SimRequest(f"v{i}", 20, 5000)) for i in range(victims)]
    arrivals += [Arrival(warmup_ms * MS, SimRequest(f"p{i}", prompt_tokens, 16)) for i in range(prompts)]
    played = run_virtual(engine, arrivals, until_ns=60_000 * MS)
    run = Run(prompt_tokens)
    for name, reads in played.reads_ns.items():
        made = Answer(played.sent_ns[name], 200, list(reads), [1] * len(reads))
        made.prompt_tokens = played.requests[name].prompt_tokens
        if name.startswith("p"):
            run.injected.append(made)
        else:
            run.victims.append([made])
    run.streaming_ns = max(answers[0].reads_ns[0] for answers in run.victims)
    run.ended_ns = run.released_ns + recovery_ms * MS
    for answers in run.victims:
        answers[0].reads_ns = [read for read in answers[0].reads_ns if read <= run.ended_ns]
    return run
