"""The view: one value with all that a core knows at one moment, made part by part."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from prefillwatch.analysis.delays import Incident, Stall
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.pressure import Forecast
from prefillwatch.analysis.requests import ModelNames, Request
from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.analysis.verdicts import Silence
from prefillwatch.core.engine_steps import EngineSteps
from prefillwatch.core.inputs import EngineLinks
from prefillwatch.core.relays import Relays
from prefillwatch.core.reported_steps import ReportedSteps
from prefillwatch.core.view.account import Accountant
from prefillwatch.core.view.around import EngineLinkNow, RelayNow, TapNow, engine_link_now, relay_now, tap_now
from prefillwatch.core.view.in_flight import (
    ModelLoad,
    RequestNow,
    StallNow,
    ended_now,
    load_by_model,
    requests_now,
    silences_by_slot,
    stall_now,
    stalls_now,
)
from prefillwatch.core.view.incidents import IncidentHead, IncidentNow, incident_head, incident_now
from prefillwatch.core.view.models import (
    ModelAdvice,
    ModelFigures,
    ModelPressure,
    model_advice,
    model_figures,
    model_pressure,
)
from prefillwatch.core.view.senders import SendersNow, senders_now
from prefillwatch.engine.gpu_memory import GpuMemory
from prefillwatch.engine.upstream import UpstreamSnapshot, UpstreamState
from prefillwatch.settings.control import Control
from prefillwatch.story import Account
from prefillwatch.units import NS


class Books(Protocol):
    """What of a core the view is made from."""

    @property
    def fed(self) -> int: ...  # inputs so far

    @property
    def ended(self) -> Iterable[Request]: ...

    settings: AnalysisSettings
    names: ModelNames
    relays: Relays
    upstream: UpstreamState
    engine_steps: EngineSteps
    reported_steps: ReportedSteps
    engine_links: EngineLinks
    gpus: dict[str, GpuMemory]
    control: Control


@dataclass(frozen=True, eq=False)
class View:
    """Frozen: whatever is read is of one moment, however long somebody holds it. A part is made when it is first read,
    since most readers need few; once the core is fed again a part that was not read by then cannot be, and raises
    RuntimeError. ``known_ns`` is as of when the books are, ``now_ns`` the moment of the look.
    """

    now_ns: int
    known_ns: int
    _books: Books
    _ledger: Ledger
    _fed: int

    @property
    def settings(self) -> AnalysisSettings:
        """By which the books are kept."""
        return self._books.settings

    # --- In flight ---

    @cached_property
    def load(self) -> tuple[ModelLoad, ...]:
        """By model."""
        ledger = self._read()
        known_ns = self.known_ns
        return load_by_model(
            ledger.requests.values(), ledger.models, self._books.names.labels, self._silences.values(), known_ns
        )

    @cached_property
    def requests(self) -> tuple[RequestNow, ...]:
        """Those in flight that make tokens, in the order they came."""
        return self._made([each for each in self._read().requests.values() if each.generating])

    @cached_property
    def owners(self) -> dict[int, int]:
        """By slot the request that has it, by its number."""
        return {slot: each.rid for each in self._read().requests.values() for slot in each.slots.values()}

    def those(self, rids: Collection[int]) -> dict[int, RequestNow]:
        """Some by number, in flight or among the latest that ended; those that are not known any more are left out."""
        known = self._read().requests
        found = {each.rid: each for each in self._made([known[rid] for rid in rids if rid in known])}
        if len(found) < len(rids):
            found |= {each.rid: each for each in self.ended if each.rid in rids and each.rid not in found}
        return found

    def in_flight(self, rid: int) -> bool:
        return rid in self._read().requests

    def without_token(self, since_ns: int) -> tuple[RequestNow, ...]:
        """Those without a first token, and those that were without one at some time since then."""
        requests = [each for each in self._read().requests.values() if each.generating]
        quick = [each for each in requests if each.first_ns > since_ns and each.sent_ns > since_ns]
        return self._made([each for each in requests if each.in_prefill] + quick)

    def _made(self, requests: list[Request]) -> tuple[RequestNow, ...]:
        ledger, labels = self._read(), self._books.names.labels
        return tuple(requests_now(requests, ledger, labels, self._silences, self._in_service))

    @cached_property
    def _in_service(self) -> frozenset[Hashable]:
        return frozenset(rid for rid, _ in self._read().engines.in_service_now())

    @cached_property
    def ended(self) -> tuple[RequestNow, ...]:
        """The latest of those that are over: how large their prompts were often shows at their very end."""
        self._read()
        return tuple(ended_now(each, self._books.names.labels) for each in self._books.ended)

    @cached_property
    def clear_step_s(self) -> float:
        """What a step without a prompt takes; 0: not known."""
        return self._read().engines.clear_step_ns / NS

    @cached_property
    def stalls(self) -> tuple[StallNow, ...]:
        """Those that last, and those that ended a moment ago, whose verdict may change yet; by their beginning."""
        return stalls_now(self._read())

    def stall(self, key: Hashable) -> StallNow:
        """One that an earlier view had, as it is now, when its verdict may be final."""
        self._read()
        assert isinstance(key, Stall)
        return stall_now(key)

    @cached_property
    def _silences(self) -> dict[int, Silence]:
        return silences_by_slot(self._read(), self.known_ns)

    # --- What went wrong ---

    @cached_property
    def incident_heads(self) -> tuple[IncidentHead, ...]:
        """Of those that last."""
        return tuple(incident_head(each) for each in self._read().causes.incidents.open)

    @cached_property
    def incidents(self) -> tuple[IncidentNow, ...]:
        """Those that last. Those that are over went to the sink."""
        ledger, labels = self._read(), self._books.names.labels
        return tuple(incident_now(each, labels, self.known_ns, ongoing=True) for each in ledger.causes.incidents.open)

    def account(self, incident: IncidentNow, document: dict[str, Any]) -> Account:
        """All that shows how it came about; ``document`` is what the API shows of it."""
        ledger = self._read()
        assert isinstance(incident.key, Incident)
        return Accountant(ledger).account(incident.key, document, incident.until_ns)

    # --- Figures of models ---

    @cached_property
    def figures(self) -> tuple[ModelFigures, ...]:
        """Of each model with books."""
        ledger, labels = self._read(), self._books.names.labels
        return tuple(
            model_figures(labels[number], books, ledger.buckets.labels, self.known_ns)
            for number, books in ledger.models.items()
        )

    @cached_property
    def advice(self) -> tuple[ModelAdvice, ...]:
        """For each model with books."""
        ledger, labels = self._read(), self._books.names.labels
        return tuple(model_advice(labels[number], ledger, number, books) for number, books in ledger.models.items())

    @cached_property
    def pressures(self) -> tuple[ModelPressure, ...]:
        """Of each model of which enough was seen."""
        ledger, labels = self._read(), self._books.names.labels
        found = [model_pressure(labels[number], gauge) for number, gauge in ledger.pressures]
        return tuple(each for each in found if each is not None)

    def forecast(self, prompt_tokens: int, cached_tokens: int) -> Forecast | None:
        """What a prompt would do that came now; None: too few steps with prompts were seen to know (`steps_seen`)."""
        return self._read().pressures.forecast(prompt_tokens, cached_tokens, self.known_ns)

    @property
    def steps_seen(self) -> int:
        """Steps with prompts that forecasts are made from."""
        return self._read().pressures.steps_seen

    @cached_property
    def senders(self) -> SendersNow:
        """By tenant and by priority, where the settings ask for it."""
        return senders_now(self._read().senders, self.known_ns)

    # --- Upstream, the engine, ourselves ---

    @cached_property
    def upstream(self) -> UpstreamSnapshot:
        """What of upstream's own metrics still holds."""
        self._read()
        return self._books.upstream.snapshot(self.now_ns)

    @cached_property
    def gpus(self) -> dict[str, GpuMemory]:
        """By the index of the GPU."""
        self._read()
        return self._books.gpus

    @cached_property
    def control(self) -> Control:
        """The supervisor's news."""
        self._read()
        return self._books.control

    @cached_property
    def engine_link(self) -> EngineLinkNow:
        ledger, books = self._read(), self._books
        wire = [each.all_gaps for each in ledger.models.values()]
        windows_s = ledger.settings.windows
        unused = books.reported_steps.unused
        return engine_link_now(books.engine_links, books.engine_steps, unused, wire, windows_s, self.now_ns)

    @cached_property
    def relays(self) -> tuple[RelayNow, ...]:
        self._read()
        return tuple(relay_now(index, each, self.now_ns) for index, each in self._books.relays.relays.items())

    @cached_property
    def tap(self) -> TapNow:
        self._read()
        return tap_now(self._books.relays)

    def _read(self) -> Ledger:
        if self._books.fed != self._fed:
            raise RuntimeError("this view is of the past, and this part of it was not read in time")
        return self._ledger
