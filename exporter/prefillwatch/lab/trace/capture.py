"""A trace of one prompt coming into steady streams: vLLM's profiler armed for a few steps around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from prefillwatch.errors import ConfigError
from prefillwatch.lab.client import Answer
from prefillwatch.lab.prompts import Prompt, PromptMaker, learning_tokens
from prefillwatch.lab.stopping import Stopped, unless_stopped
from prefillwatch.lab.target import PATIENCE_S, Target, TargetError, refusal
from prefillwatch.lab.trace.errors import CaptureInterrupted, TraceError
from prefillwatch.lab.trace.findings import ClientSide
from prefillwatch.units import MS, NS

START: Final = "/start_profile"
STOP: Final = "/stop_profile"
#: Writing a trace takes seconds on a CPU, minutes on a busy GPU.
WRITING_LIMIT_S: Final = 600.0
_VICTIM_PROMPT: Final = 48
_ANSWER: Final = 2
#: Steps after which vLLM ends the profile by itself, in case we are no longer there to end it.
_MOST_STEPS: Final = 2000
_LOOK_EVERY_S: Final = 0.002
_now = time.monotonic


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What to send. Counts of tokens around the prompt are engine steps: each gives every stream one."""

    victims: int = 4
    prompt_tokens: int = 6000
    #: Tokens of each victim in the trace before the prompt is sent.
    tokens_before: int = 10
    #: Tokens of each victim after the prompt's first token.
    tokens_after: int = 20
    #: Most tokens of one victim.
    victim_tokens: int = 2048
    #: From the first victim to the end of the profile, writing the trace not counted.
    max_seconds: float = 120.0
    #: Send a prompt of that size once before, so that kernels are tuned and compiled when it counts.
    warm: bool = True

    def __post_init__(self) -> None:
        if self.tokens_before + self.tokens_after + 64 > self.victim_tokens:
            raise ConfigError("the victims' answers end before the trace does; raise --victim-tokens")

    @property
    def most_tokens(self) -> int:
        """Prompts and answers of all requests together, at most."""
        long = (2 if self.warm else 1) * (self.prompt_tokens + _ANSWER)
        return long + self.victims * (_VICTIM_PROMPT + self.victim_tokens) + learning_tokens()


@dataclass(slots=True)
class _Run:
    victims: list[Answer] = field(default_factory=list)
    prompt: Answer = field(default_factory=Answer)
    armed_ns: int = 0
    disarmed_ns: int = 0


async def check_profiler(target: Target) -> None:
    """Raises TargetError, naming the flag, where the server has no profiler. Sends nothing that costs tokens."""
    answer = await target.ask(None, path=START, timeout_seconds=PATIENCE_S)
    if answer.error:
        raise TargetError(f"no answer from {target.url} ({answer.error}); is the server up, and there?")
    if answer.status == 404:
        raise _without_profiler(target)


def _without_profiler(target: Target) -> TargetError:
    return TargetError(
        f"{target.url} has no profiler ({START}: HTTP 404); start vLLM with --profiler-config "
        '\'{"profiler": "torch", "torch_profiler_dir": "/a/folder"}\' '
        "(older releases: VLLM_TORCH_PROFILER_DIR=/a/folder in its environment)"
    )


async def capture(
    target: Target, settings: CaptureSettings, say: Callable[[str], None], stop: asyncio.Event
) -> ClientSide:
    """Plays the scene with the profiler running, and always stops the profiler at the end. `stop` ends it early. Raises
    TargetError when the server refuses a request or has no profiler, TraceError when there was no profile.

    Raises TargetError when the server refuses a request or has no profiler, TraceError when it came to no profile.
    """
    try:
        return await _captured(target, settings, say, stop)
    except Stopped:
        raise CaptureInterrupted("nothing was captured: interrupted") from None


async def _captured(
    target: Target, settings: CaptureSettings, say: Callable[[str], None], stop: asyncio.Event
) -> ClientSide:
    await check_profiler(target)
    if target.max_model_len and settings.prompt_tokens + _ANSWER > target.max_model_len:
        raise ConfigError(f"a prompt of {settings.prompt_tokens} tokens does not fit; {target.model} takes "
                          f"{target.max_model_len} with the answer")  # fmt: skip
    target, shorts, long = await unless_stopped(_prepared(target, settings, say), stop)
    return await _Scene(target, settings, say, stop).play(shorts, long)


async def _prepared(
    target: Target, settings: CaptureSettings, say: Callable[[str], None]
) -> tuple[Target, list[Prompt], Prompt]:
    """The target with the dialect that it accepts, the victims' prompts and the long prompt, all prepared."""
    maker = await PromptMaker.learn(target)
    long = await maker.make_many(2 if settings.warm else 1, settings.prompt_tokens)
    shorts = await maker.make_many(settings.victims, _VICTIM_PROMPT)
    if settings.warm:
        say(f"warming up with a prompt of {long[-1].tokens:,} tokens")
        body = maker.target.body(long[-1].text, _ANSWER)
        if why := refusal(await maker.target.ask(body, timeout_seconds=settings.max_seconds)):
            raise TargetError(f"{target.url} gives no answer to a prompt of {long[-1].tokens:,} tokens ({why})")
    return maker.target, shorts, long[0]


class _Scene:
    def __init__(
        self, target: Target, settings: CaptureSettings, say: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        self._target = target
        self._settings = settings
        self._say = say
        self._stop = stop
        self._run = _Run()
        self._problem = ""
        self._deadline = _now() + settings.max_seconds

    async def play(self, shorts: Sequence[Prompt], long: Prompt) -> ClientSide:
        tasks = [asyncio.ensure_future(self._stream(prompt)) for prompt in shorts]
        try:
            self._say(f"{len(shorts)} streams begin")
            await self._until(lambda: self._every_victim_has(5), tasks)
            if not self._problem:
                await self._profiled(long, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not self._run.armed_ns:
            if self._stop.is_set():
                raise Stopped
            raise TraceError(f"nothing was captured: {self._problem}")
        return self._seen(long)

    async def _stream(self, prompt: Prompt) -> None:
        answer = Answer()
        self._run.victims.append(answer)
        body = self._target.body(prompt.text, self._settings.victim_tokens)
        await self._target.ask(body, timeout_seconds=self._settings.max_seconds + WRITING_LIMIT_S, answer=answer)
        if why := refusal(answer):
            raise TargetError(f"{self._target.url} gives a stream no answer ({why})")

    async def _profiled(self, long: Prompt, tasks: Sequence[asyncio.Future[None]]) -> None:
        await self._arm()
        sending: asyncio.Future[Answer] | None = None
        try:
            before = [len(victim.reads_ns) for victim in self._run.victims]
            await self._until(lambda: self._every_victim_has(self._settings.tokens_before, before), tasks)
            if not self._problem:
                self._say(f"sending a prompt of {long.tokens:,} tokens")
                body, limit = self._target.body(long.text, _ANSWER), self._settings.max_seconds
                asking = self._target.ask(body, timeout_seconds=limit, answer=self._run.prompt)
                sending = asyncio.ensure_future(asking)
                await self._until(lambda: bool(self._run.prompt.reads_ns) or sending.done(), tasks)
            if not self._problem:
                after = [len(victim.reads_ns) for victim in self._run.victims]
                await self._until(lambda: self._every_victim_has(self._settings.tokens_after, after), tasks)
        finally:
            await self._disarm()
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    def _every_victim_has(self, tokens: int, since: Sequence[int] = ()) -> bool:
        counts = [len(victim.reads_ns) for victim in self._run.victims]
        return len(counts) == self._settings.victims and all(
            count - start >= tokens for count, start in zip(counts, since or [0] * len(counts), strict=True)
        )

    async def _until(self, reached: Callable[[], bool], tasks: Sequence[asyncio.Future[None]]) -> None:
        """Waits until the condition holds. If it never does, `_problem` says why. Raises what a victim raised."""
        while not reached():
            for task in tasks:
                if task.done():
                    task.result()
            if self._stop.is_set():
                self._problem = "interrupted"
            elif _now() > self._deadline:
                self._problem = f"not done within {self._settings.max_seconds:g} s (--max-time)"
            elif tasks and all(task.done() for task in tasks):
                self._problem = "all streams ended before (--victim-tokens)"
            if self._problem:
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _arm(self) -> None:
        # Releases that do not know these options ignore them.
        wishes = {"profile_prefix": f"prefillwatch-{time.time_ns() // MS}", "max_iterations": _MOST_STEPS}
        try:
            answer = await self._target.ask(wishes, path=START, timeout_seconds=WRITING_LIMIT_S)
        except asyncio.CancelledError:
            await self._disarm()
            raise
        if answer.status == 404:
            raise _without_profiler(self._target)
        if why := refusal(answer):
            raise TargetError(f"{self._target.url}{START}: the profiler could not be started ({why})")
        self._run.armed_ns = time.monotonic_ns()
        self._say("profiler armed")

    async def _disarm(self) -> None:
        self._run.disarmed_ns = time.monotonic_ns()
        self._say("profiler disarmed; the server writes the trace")
        answer = await self._target.ask({}, path=STOP, timeout_seconds=WRITING_LIMIT_S)
        if why := refusal(answer):
            raise TraceError(f"{self._target.url}{STOP}: the profiler could not be stopped ({why}); stop it by hand")

    def _seen(self, long: Prompt) -> ClientSide:
        run = self._run
        sent = run.prompt.sent_ns if run.prompt.status else 0
        answered = run.prompt.reads_ns[0] if run.prompt.reads_ns else 0
        if run.prompt.error and not self._problem:
            self._problem = f"the prompt got no answer ({run.prompt.error})"
        return ClientSide(
            victims=self._settings.victims,
            prompt_tokens=run.prompt.prompt_tokens or (long.tokens if sent else None),
            ttft_seconds=run.prompt.ttft_seconds,
            gap_before_seconds=self._gap(run.armed_ns, sent or run.disarmed_ns),
            gap_during_seconds=self._gap(sent, answered) if sent and answered else None,
            gap_after_seconds=self._gap(answered, run.disarmed_ns) if answered else None,
            problem=self._problem,
            interrupted=bool(self._problem) and self._stop.is_set(),
        )

    def _gap(self, start_ns: int, end_ns: int) -> float | None:
        """Median of the victims' gaps that ended in that time."""
        gaps = [
            (later - earlier) / NS
            for victim in self._run.victims
            for earlier, later in pairwise(victim.reads_ns)
            if start_ns < later <= end_ns
        ]
        return median(gaps) if gaps else None
