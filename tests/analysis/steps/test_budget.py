"""Budget and cost read off busy times that a small scheduler makes."""

import pytest

from prefillwatch.analysis.steps.budget import Learner
from prefillwatch.analysis.steps.packing import OpenStep, Prompt
from prefillwatch.units import MS

CLEAR = 20
TOKEN_NS = 0.1 * MS


class Scheduler:
    """Serves prompts that all arrive at once, and teaches a learner with it."""

    def __init__(self, budget: int, *, chunked: bool = True, cap: int = 1 << 40, context_ns: float = 0.0) -> None:
        self.budget, self.chunked, self.cap, self.context_ns = budget, chunked, cap, context_ns
        self.now_ns = 0
        self.learner = Learner()

    def serve(self, *sizes: int, decoders: int = 8, pause_ms: int = 0) -> None:
        start_ns = self.now_ns + CLEAR * MS
        prompts = [Prompt(f"{start_ns}-{index}", self.now_ns, size, size) for index, size in enumerate(sizes)]
        rest = {prompt: prompt.uncached for prompt in prompts}
        steps: list[OpenStep] = []
        finished: list[tuple[Prompt, OpenStep]] = []
        while rest:
            end_ns = start_ns + CLEAR * MS + (0 if steps else pause_ms * MS)
            done = []
            room = self.budget - decoders
            for prompt, left in list(rest.items()):
                if room <= 0 or (not self.chunked and left > room):
                    break
                tokens = min(room, left, self.cap)
                before = prompt.uncached - left
                end_ns += round(tokens * (TOKEN_NS + self.context_ns * (before + tokens / 2)))
                room -= tokens
                rest[prompt] -= tokens
                if not rest[prompt]:
                    del rest[prompt]
                    done.append(prompt)
            steps.append(OpenStep(start_ns, end_ns, decoders, CLEAR * MS, long=True))
            for prompt in done:
                prompt.first_ns = end_ns
            finished += [(prompt, steps[-1]) for prompt in done]
            start_ns = end_ns
        self.now_ns = start_ns + 1000 * MS
        self.learner.add(steps, finished)


def test_nothing_seen_nothing_known() -> None:
    engine = Learner().engine
    assert (engine.budget, engine.proven, engine.cost.known) == (0, False, False)


@pytest.mark.parametrize("budget", [512, 1024, 2048, 8192, 16384])
def test_a_queue_shows_the_budget_at_once(budget: int) -> None:
    scheduler = Scheduler(budget)
    scheduler.serve(*[3 * budget - budget // 5] * 6)
    engine = scheduler.learner.engine
    assert (engine.budget, engine.chunked, engine.proven) == (budget, True, True)
    assert engine.cost.token_ns == pytest.approx(TOKEN_NS, rel=0.05)


def test_attention_does_not_make_it_look_larger() -> None:
    scheduler = Scheduler(2048, context_ns=40.0)
    for size in (5000, 6000, 9000, 2500):
        scheduler.serve(size)
    assert scheduler.learner.engine.budget == 2048


def test_a_budget_between_the_powers_of_two() -> None:
    scheduler = Scheduler(3000)
    scheduler.serve(6000, 800, 2500, 6000, 6000, 300, 300, 4000, 6000, 2500, 800, 6000)
    scheduler.serve(6000, 2500, 6000, 4000, 800)
    engine = scheduler.learner.engine
    assert engine.proven
    assert engine.budget == pytest.approx(3000, rel=0.02)


def test_prompts_that_fit_into_one_step_prove_no_budget() -> None:
    scheduler = Scheduler(8192)
    for _ in range(10):
        scheduler.serve(700)
        scheduler.serve(300, 500)
    engine = scheduler.learner.engine
    assert not engine.proven
    assert engine.budget >= 800 + 8


def test_without_chunked_prefill_no_prompt_is_split() -> None:
    scheduler = Scheduler(8192, chunked=False)
    scheduler.serve(6000, 3000, 4000, 5000, 500, 7000, 2000)
    scheduler.serve(5000, 6000, 6000)
    engine = scheduler.learner.engine
    assert (engine.budget, engine.chunked) == (8192, False)


def test_a_cap_on_the_chunks_of_one_prompt() -> None:
    scheduler = Scheduler(2048, cap=512)
    for _ in range(3):
        scheduler.serve(2500, 300, 6000, 800, 2500, 6000, 300)
    engine = scheduler.learner.engine
    assert (engine.budget, engine.cap) == (2048, 512)


def test_a_pause_of_the_engine_changes_nothing() -> None:
    scheduler = Scheduler(2048)
    for _ in range(6):
        scheduler.serve(6000)
    scheduler.serve(300, pause_ms=5000)
    engine = scheduler.learner.engine
    assert engine.budget == 2048
    assert engine.cost.token_ns == pytest.approx(TOKEN_NS, rel=0.1)


def test_another_budget_after_a_restart_of_the_engine() -> None:
    scheduler = Scheduler(2048)
    for _ in range(30):
        scheduler.serve(6000, 6000)
    scheduler.budget = 8192
    for _ in range(60):
        scheduler.serve(20_000, 20_000)
    assert scheduler.learner.engine.budget == 8192


def test_sizes_known_late_correct_the_cost() -> None:
    scheduler = Scheduler(8192)
    told = []
    for _ in range(6):
        scheduler.serve(500)
        prompt, _ = scheduler.learner._runs[-1].prompts[0]
        prompt.uncached = prompt.tokens = 5000  # taken for ten times as long, as if nothing had been cached
        told.append(prompt)
    scheduler.learner.resized()
    assert scheduler.learner.engine.cost.token_ns == pytest.approx(TOKEN_NS / 10, rel=0.05)
    for prompt in told:
        prompt.uncached, prompt.sure = 500, True
    scheduler.learner.resized()
    assert scheduler.learner.engine.cost.token_ns == pytest.approx(TOKEN_NS, rel=0.05)


def test_what_the_engine_reports_teaches_the_cost() -> None:
    learner = Learner()
    for tokens in (300, 500, 900, 1500, 2000, 700):
        step = OpenStep(0, round(CLEAR * MS + tokens * TOKEN_NS), 8, CLEAR * MS, long=True, reported=True)
        step.put(Prompt("p", 0, tokens, tokens), tokens, 0, learner.engine.cost)
        learner.add_step(step)
    assert learner.engine.cost.token_ns == pytest.approx(TOKEN_NS, rel=0.05)
