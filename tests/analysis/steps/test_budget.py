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
        scheduler.learner.resized(prompt)
        told.append(prompt)
    assert scheduler.learner.engine.cost.token_ns == pytest.approx(TOKEN_NS / 10, rel=0.05)
    for prompt in told:
        prompt.uncached, prompt.sure = 500, True
        scheduler.learner.resized(prompt)
    assert scheduler.learner.engine.cost.token_ns == pytest.approx(TOKEN_NS, rel=0.05)


def test_the_size_of_a_prompt_that_taught_nothing_costs_no_work() -> None:
    scheduler = Scheduler(8192)
    for _ in range(6):
        scheduler.serve(500)
    engine = scheduler.learner.engine
    scheduler.learner.resized(Prompt("other", 0, 500, 500))
    assert scheduler.learner.engine is engine


def test_what_the_engine_reports_teaches_the_cost() -> None:
    learner = Learner()
    for tokens in (300, 500, 900, 1500, 2000, 700):
        step = OpenStep(0, round(CLEAR * MS + tokens * TOKEN_NS), 8, CLEAR * MS, long=True, reported=True)
        step.put(Prompt("p", 0, tokens, tokens), tokens, 0, learner.engine.cost)
        learner.add_step(step)
    assert learner.engine.cost.token_ns == pytest.approx(TOKEN_NS, rel=0.05)


# --- How much is enough, how much is too much ---


def teach(learner: Learner, token_ns: float, tokens: int = 1000, *, sure: bool = False) -> None:
    """A busy time of one step with one prompt."""
    end_ns = (learner._runs[-1].steps[-1].end_ns if learner._runs else 0) + 10_000 * MS
    prompt = Prompt("p", end_ns - 5000 * MS, tokens, tokens, sure=sure, first_ns=end_ns)
    step = OpenStep(end_ns - round(CLEAR * MS + tokens * token_ns), end_ns, 8, CLEAR * MS, long=True)
    learner.add([step], [(prompt, step)])


def test_busy_times_that_follow_one_another_are_learned_from_together() -> None:
    learner = Learner()
    teach(learner, TOKEN_NS)
    first = learner.engine.cost
    end_ns = learner._runs[-1].steps[-1].end_ns
    for later_ms, learned in ((100, False), (240, False), (260, True)):
        prompt = Prompt("p", end_ns - 5000 * MS, 1000, 1000, first_ns=end_ns + later_ms * MS)
        step = OpenStep(end_ns - 400 * MS, end_ns + later_ms * MS, 8, CLEAR * MS, long=True)
        learner.add([step], [(prompt, step)])
        assert (learner.engine.cost != first) is learned


def report(learner: Learner, token_ns: float, tokens: int = 1000) -> None:
    step = OpenStep(0, round(CLEAR * MS + tokens * token_ns), 8, CLEAR * MS, long=True, reported=True)
    step.put(Prompt("p", 0, tokens, tokens), tokens, 0, learner.engine.cost)
    learner.add_step(step)


@pytest.mark.parametrize(("dearer", "cost"), [(41, TOKEN_NS), (42, 2 * TOKEN_NS)])
def test_the_last_sixty_four_busy_times_are_learned_from(dearer: int, cost: float) -> None:
    """The cost is the one that a third of them stay below."""
    learner = Learner()
    for _ in range(100):
        teach(learner, TOKEN_NS)
    for _ in range(dearer):
        teach(learner, 2 * TOKEN_NS)
    assert learner.engine.cost.token_ns == pytest.approx(cost, rel=0.01)


@pytest.mark.parametrize(("dearer", "cost"), [(166, TOKEN_NS), (167, 2 * TOKEN_NS)])
def test_of_single_steps_the_last_two_hundred_and_fifty_six(dearer: int, cost: float) -> None:
    learner = Learner()
    for _ in range(400):
        report(learner, TOKEN_NS)
    for _ in range(dearer):
        report(learner, 2 * TOKEN_NS)
    learner.resized(learner._steps[-1].shares[0][0])
    assert learner.engine.cost.token_ns == pytest.approx(cost, rel=0.01)


@pytest.mark.parametrize(("tokens", "known"), [(63, False), (64, True)])
def test_a_busy_time_of_fewer_than_sixty_four_tokens_is_noise(tokens: int, known: bool) -> None:
    learner = Learner()
    teach(learner, TOKEN_NS, tokens)
    assert learner.engine.cost.known is known


@pytest.mark.parametrize(("sure", "cost"), [(3, 2 * TOKEN_NS), (4, TOKEN_NS)])
def test_with_four_busy_times_of_known_sizes_estimates_are_left_out(sure: int, cost: float) -> None:
    learner = Learner()
    for _ in range(40):
        teach(learner, 2 * TOKEN_NS)
    for _ in range(sure):
        teach(learner, TOKEN_NS, sure=True)
    assert learner.engine.cost.token_ns == pytest.approx(cost, rel=0.01)


@pytest.mark.parametrize(("steps", "known"), [(2, False), (3, True)])
def test_three_steps_that_the_engine_reported_teach_a_cost(steps: int, known: bool) -> None:
    learner = Learner()
    for _ in range(steps):
        report(learner, TOKEN_NS)
    assert learner.engine.cost.known is known


@pytest.mark.parametrize(("prompts", "budget"), [(7, 4096), (8, 3000)])
def test_more_than_twelve_steps_beyond_the_first_before_other_budgets_are_tried(prompts: int, budget: int) -> None:
    """Seven prompts take twelve steps in all, eight take fourteen."""
    scheduler = Scheduler(3000)
    scheduler.serve(*[5000] * prompts)
    assert scheduler.learner.engine.budget == budget


@pytest.mark.parametrize(("others", "budget"), [(4, 3000), (6, 4096)])
def test_another_budget_has_to_explain_a_third_of_what_was_misplaced(others: int, budget: int) -> None:
    """The server had a budget of 4,096 before: the more was seen of that, the less does 3,000 make better."""
    scheduler = Scheduler(4096)
    scheduler.serve(*[6000] * others)
    scheduler.budget = 3000
    scheduler.serve(*[3500] * 8)
    assert scheduler.learner.engine.budget == pytest.approx(budget, rel=0.001)


@pytest.mark.parametrize(("since", "proven"), [(13, True), (14, False)])
def test_a_budget_stays_proven_while_half_a_step_speaks_against_none(since: int, proven: bool) -> None:
    """A step in the wrong place weighs 0.95 of it after each busy time that shows nothing."""
    scheduler = Scheduler(2048)
    scheduler.serve(4080)
    for _ in range(since):
        scheduler.serve(500)
    assert scheduler.learner.engine.proven is proven
