"""Plays a mix on one server: its arrivals when they are due, and readers beside them all the time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping
from typing import Final

from prefillwatch.lab.arrivals import Arrival, PlayReport, Schedule, play
from prefillwatch.lab.client import Answer
from prefillwatch.lab.load import VICTIM
from prefillwatch.lab.probe.settings import VICTIM_PROMPT_TOKENS
from prefillwatch.lab.prompts import PromptMaker
from prefillwatch.lab.sweep.figures import MixFigures
from prefillwatch.lab.sweep.mix import PREPARATION_LIMIT_S, MixSettings
from prefillwatch.lab.sweep.mix_figures import Played, mix_figures
from prefillwatch.lab.target import Target, TargetError

_PAUSE_AFTER_FAILURE_S: Final = 0.5


async def run_mix(target: Target, schedule: Schedule, settings: MixSettings) -> MixFigures:
    """Raises TargetError when the server does not take the plainest request; what happens to single requests is in the
    figures."""
    try:
        mix = await asyncio.wait_for(_prepared(target, schedule, settings), PREPARATION_LIMIT_S)
    except asyncio.TimeoutError:
        raise TargetError(f"{target.url} took over {PREPARATION_LIMIT_S:g} s to count the prompts of the mix") from None
    return mix_figures(await mix.play(), settings.seconds)


async def _prepared(target: Target, schedule: Schedule, settings: MixSettings) -> _Mix:
    """Prompts are made before the mix begins, so that counting their tokens does not disturb what is measured."""
    maker = await PromptMaker.learn(target)
    texts = {
        id(each): (await maker.make(max(each.prompt_tokens, maker.shortest), each.blocks, each.block_tokens)).text
        for each in schedule.arrivals
    }
    return _Mix(maker, schedule, settings, texts)


class _Mix:
    def __init__(self, maker: PromptMaker, schedule: Schedule, settings: MixSettings, texts: Mapping[int, str]) -> None:
        self._maker = maker
        self._target = maker.target
        self._schedule = schedule
        self._settings = settings
        self._texts = texts
        self._played = Played()
        self._report = PlayReport()

    async def play(self) -> Played:
        settings = self._settings
        self._played.start_ns = time.monotonic_ns()
        readers = [asyncio.ensure_future(self._read(i)) for i in range(settings.readers)]
        try:
            with contextlib.suppress(asyncio.TimeoutError):  # what has come by then is kept
                await asyncio.wait_for(self._arrive(), settings.seconds + settings.drain_seconds)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        self._played.end_ns = time.monotonic_ns()
        self._played.turned_away = self._report.turned_away
        return self._played

    async def _arrive(self) -> None:
        limit = self._settings.max_in_flight
        arriving = play(self._schedule, self._send, max_in_flight=limit, report=self._report)
        await asyncio.gather(arriving, asyncio.sleep(self._settings.seconds))

    async def _send(self, arrival: Arrival) -> Answer:
        answer = Answer()
        self._played.arrivals.append((arrival, answer))
        body = self._target.body(self._texts[id(arrival)], max(1, arrival.output_tokens), user=arrival.tenant)
        return await self._target.ask(body, answer=answer)

    async def _read(self, number: int) -> None:
        rng = random.Random(f"reader {number} {self._settings.seed}")
        answers: list[Answer] = []
        self._played.readers.append(answers)
        left = self._settings.reader_tokens
        while (wanted := min(left, rng.randint(*VICTIM.answer_tokens))) > 0:
            left -= wanted + VICTIM_PROMPT_TOKENS
            answer = Answer()
            answers.append(answer)
            await self._target.ask(self._target.body(self._maker.chatter(), wanted), answer=answer)
            if answer.error or answer.status != 200:
                await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
