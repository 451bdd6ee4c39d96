"""Plays the experiment against a server, and keeps what happened whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prefillwatch.lab.client import Answer
from prefillwatch.lab.probe.halt import Halt, Halted
from prefillwatch.lab.probe.result import ProbeResult
from prefillwatch.lab.probe.settings import START_LIMIT_S, VICTIM_PROMPT_TOKENS, ProbeSettings, fitted, plan
from prefillwatch.lab.probe.timeline import Run
from prefillwatch.lab.prompts import Prompt, PromptMaker
from prefillwatch.lab.target import Target, TargetError, refusal
from prefillwatch.report import duration
from prefillwatch.units import NS

#: Requests without a token after which a victim gives up.
_MOST_FAILURES: Final = 3
_PAUSE_AFTER_FAILURE_S: Final = 0.3
#: Between two runs, so that the server has noticed that the victims of the first are gone.
_PAUSE_BETWEEN_RUNS_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Lump:
    """A long prompt, due so many seconds after the first."""

    prompt: Prompt
    answer_tokens: int
    at_seconds: float = 0.0
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the probe is. `run` counts from 1; 0 is before the first."""

    run: int
    runs: int
    prompt_tokens: int
    text: str
    #: Only the newest of these matters: a terminal shows it in place of the one before.
    passing: bool = False


Report = Callable[[Progress], None]


async def run_probe(
    target: Target, settings: ProbeSettings, progress: Report | None = None, *, stop: asyncio.Event | None = None
) -> ProbeResult:
    """The whole experiment: every size, every repeat.

    `stop` ends it early. Whatever ends it early, the result holds what was measured until then, and its `problem` says
    why. Raises ConfigError when it would go beyond its bounds, TargetError when nothing could be measured at all.
    """
    plan(settings)
    settings = fitted(settings, target.max_model_len)
    return await _Probe(target, settings, progress or (lambda _: None), stop).run()


class _Probe:
    def __init__(self, target: Target, settings: ProbeSettings, progress: Report, stop: asyncio.Event | None) -> None:
        self._settings = settings
        self._progress = progress
        self._halt = Halt(settings.max_seconds, stop)
        self._result = ProbeResult(target.url, target.model, settings, started_at=time.time())
        self._target = target

    async def run(self) -> ProbeResult:
        with self._halt.watching():
            try:
                await self._halt.first_of(self._play())
            except Halted as halted:
                self._result.problem, self._result.interrupted = halted.why, halted.wanted
            except TargetError as error:
                if not self._result.runs:
                    raise
                self._result.problem = str(error)
        return self._result

    async def _play(self) -> None:
        self._say(0, "getting to know the server")
        maker = await PromptMaker.learn(self._target, self._settings.seed)
        self._target = maker.target
        self._result.counted_by = maker.source
        await self._rehearse(maker)
        sizes = [
            (repeat, tokens) for repeat in range(self._settings.repeats) for tokens in self._settings.prompt_tokens
        ]
        for number, (repeat, tokens) in enumerate(sizes, 1):
            if number > 1:
                await asyncio.sleep(_PAUSE_BETWEEN_RUNS_S)
            lumps = await self._lumps(maker, tokens, repeat)
            run = Run(tokens, repeat, asked_tokens=[lump.prompt.tokens for lump in lumps])
            self._result.runs.append(run)
            say = functools.partial(self._say, number)
            play = _Play(self._target, self._settings, maker, run, say)
            await play.run(lumps)

    async def _lumps(self, maker: PromptMaker, tokens: int, repeat: int) -> list[Lump]:
        """Made before any victim streams, since counting tokens is work for the server too."""
        settings = self._settings
        if settings.arrivals is None:
            prompts = await maker.make_many(settings.inject, tokens)
            return [Lump(prompt, settings.answer_tokens) for prompt in prompts]
        return [
            Lump(
                # The server's prefix cache must know nothing of the run before.
                await maker.make(
                    max(arrival.prompt_tokens, maker.shortest),
                    [(repeat, block) for block in arrival.blocks],
                    arrival.block_tokens,
                ),
                max(1, arrival.output_tokens),
                arrival.at_seconds,
                arrival.tenant,
            )
            for arrival in settings.arrivals.arrivals
        ]

    async def _rehearse(self, maker: PromptMaker) -> None:
        """One long prompt on an idle server. What is compiled or loaded at the first prompt is no freeze to report, and
        a server that refuses such a prompt does so before any victim streams."""
        tokens = max(self._settings.prompt_tokens)
        self._say(0, f"rehearsal: one prompt of {tokens:,} tokens")
        prompt = await maker.make(tokens)
        answer = await self._target.ask(
            self._target.body(prompt.text, 1), timeout_seconds=self._settings.injection_seconds
        )
        if why := refusal(answer):
            raise TargetError(f"{self._target.url} does not answer a prompt of {tokens:,} tokens ({why})")
        maker.correct(prompt, answer.prompt_tokens)

    def _say(self, number: int, text: str, passing: bool = False) -> None:
        size = self._result.runs[-1].prompt_tokens if self._result.runs else max(self._settings.prompt_tokens)
        self._progress(Progress(number, self._settings.runs, size, text, passing))


class _Play:
    """One run."""

    def __init__(
        self, target: Target, settings: ProbeSettings, maker: PromptMaker, run: Run, say: Callable[..., None]
    ) -> None:
        self._target = target
        self._settings = settings
        self._maker = maker
        self._run = run
        self._say = say
        self._victims: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[Any]] = []
        self._prompt_tokens = max(VICTIM_PROMPT_TOKENS, maker.chatter_tokens)
        self._lumps = 0
        self._shown = 0.0

    async def run(self, lumps: Sequence[Lump]) -> None:
        try:
            await self._phases(lumps)
        except asyncio.CancelledError:
            self._run.problem = "cut short"
            raise
        except TargetError as error:
            self._run.problem = str(error)
            raise
        finally:
            await _hang_up([*self._victims, *self._others])
            self._run.ended_ns = time.monotonic_ns()

    async def _phases(self, lumps: Sequence[Lump]) -> None:
        settings, run = self._settings, self._run
        self._start_victims()
        await self._until(lambda: self._streaming() == settings.victims or self._failed() != [], START_LIMIT_S)
        self._check_victims()
        run.streaming_ns = time.monotonic_ns()
        self._say(f"{settings.victims} victims stream; warm-up {settings.warmup_seconds:g} s")
        await self._until(lambda: False, settings.warmup_seconds)
        self._say(_sending(settings, run.prompt_tokens))
        self._lumps = len(lumps)
        self._others.append(asyncio.create_task(self._inject(lumps)))
        await self._until(self._taken_in, settings.arriving_seconds + settings.injection_seconds)
        self._check_prompts()
        waited = max(0, run.released_ns - run.injected_ns) / NS
        self._say(f"taken in after {duration(waited)}; recovery {duration(settings.recovery_seconds)}")
        await self._until(lambda: False, settings.recovery_seconds)

    def _start_victims(self) -> None:
        for index in range(self._settings.victims):
            answers = [Answer()]
            self._run.victims.append(answers)
            self._victims.append(asyncio.create_task(self._stream(index, answers)))

    async def _stream(self, index: int, answers: list[Answer]) -> None:
        """One victim: answer after answer until its tokens are used up."""
        left, failures = self._settings.victim_tokens, 0
        while True:
            answer = answers[-1]
            await self._target.ask(
                self._target.body(self._maker.chatter(), self._answer_tokens(left)), answer=answer, timeout_seconds=3600
            )
            left -= self._prompt_tokens + (answer.completion_tokens or answer.events)
            failures = 0 if answer.reads_ns and answer.complete else failures + 1
            if failures >= _MOST_FAILURES:
                raise TargetError(f"victim {index + 1} gets no answer any more ({refusal(answer) or 'no token'})")
            if left <= self._prompt_tokens:
                return
            if failures:
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
            answers.append(Answer())

    def _answer_tokens(self, left: int) -> int:
        most = min(left, self._target.max_model_len or left)
        return max(1, most - self._prompt_tokens)

    async def _inject(self, lumps: Sequence[Lump]) -> None:
        start = time.monotonic()
        for lump in lumps:
            if (early := start + lump.at_seconds - time.monotonic()) > 0:
                await asyncio.sleep(early)
            answer = Answer()
            self._run.injected.append(answer)
            body = self._target.body(lump.prompt.text, lump.answer_tokens, user=lump.tenant)
            self._others.append(asyncio.create_task(self._target.ask(body, answer=answer)))

    def _streaming(self) -> int:
        """Victims that have had a token."""
        return sum(bool(answers[0].reads_ns) for answers in self._run.victims)

    def _failed(self) -> list[asyncio.Task[None]]:
        return [task for task in self._victims if task.done() and not task.cancelled() and task.exception()]

    def _check_victims(self) -> None:
        for task in self._failed():
            task.result()
        if self._streaming() < self._settings.victims:
            raise TargetError(
                f"only {self._streaming()} of {self._settings.victims} victims had a token within {START_LIMIT_S:g} s; "
                "if the server does not answer so many at once, take fewer --victims"
            )

    def _taken_in(self) -> bool:
        injected = self._run.injected
        return len(injected) == self._lumps and all(each.reads_ns or each.closed_ns for each in injected)

    def _check_prompts(self) -> None:
        injected = self._run.injected
        if not any(answer.reads_ns for answer in injected):
            why = next((refusal(answer) for answer in injected if refusal(answer)), "")
            why = why or f"none within {self._settings.injection_seconds:g} s, the --injection-limit"
            raise TargetError(f"no long prompt got a first token ({why})")

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Until the condition holds, for `limit_s` at most. Raises TargetError when no victim streams any more."""
        deadline = time.monotonic() + limit_s
        while not condition() and (left := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.02))
            self._show()
            if len(failed := self._failed()) == len(self._victims):
                failed[0].result()

    def _show(self) -> None:
        now, run = time.monotonic(), self._run
        if now < self._shown + 0.25:
            return
        self._shown = now
        tokens = sum(answer.events for answers in run.victims for answer in answers)
        begun = sum(bool(answer.reads_ns) for answer in run.injected)
        prompts = f", {begun} of {len(run.injected)} long prompts have their first token" if run.injected else ""
        self._say(f"{tokens:,} tokens streamed{prompts}", passing=True)


def _sending(settings: ProbeSettings, prompt_tokens: int) -> str:
    if settings.arrivals:
        return f"{settings.inject} recorded arrivals over {duration(settings.arriving_seconds)}"
    prompts = "1 prompt" if settings.inject == 1 else f"{settings.inject} prompts"
    return f"{prompts} of {prompt_tokens:,} tokens sent"


async def _hang_up(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
