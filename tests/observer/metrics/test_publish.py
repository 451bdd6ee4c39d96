"""What becomes of the ledger's facts on the metrics page."""

from __future__ import annotations

import numpy as np

from prefillwatch.analysis.requests.models import ModelNames
from prefillwatch.analysis.requests.prompt_sizes import PromptBuckets
from prefillwatch.export import table
from prefillwatch.export.registry import Registry
from prefillwatch.observer.metrics import Publisher


def test_stall_counters_are_there_at_zero_before_the_first_stall() -> None:
    registry, names = Registry(), ModelNames()
    names.serve(["m"])
    number = names.number(names.admit("m"))
    publisher = Publisher(registry, names, PromptBuckets((1000,)))
    publisher.gaps(number, 0, np.array([0.02]))
    for cause in table.STALL_CAUSE.values:
        assert registry.counter(table.STALL_SECONDS).value(("m", cause)) == 0.0
        assert registry.counter(table.FREEZES).value(("m", cause)) == 0.0
    # Sizes as the operator set them, not as they are by default.
    assert registry.counter(table.PREFILL_BLAME).value(("m", "0-1000")) == 0.0
    assert ("m", "0-512") not in registry.counter(table.PREFILL_BLAME)


def test_a_model_that_was_forgotten_begins_anew() -> None:
    registry, names = Registry(), ModelNames()
    names.serve(["m"])
    number = names.number(names.admit("m"))
    publisher = Publisher(registry, names, PromptBuckets((1000,)))
    publisher.gaps(number, 0, np.array([0.02]))
    registry.forget("model", "m")
    publisher.gaps(number, 0, np.array([0.02]))
    assert registry.counter(table.STALLS).value(("m", "prefill")) == 0.0
