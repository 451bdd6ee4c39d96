"""Which model names become labels."""

from __future__ import annotations

import tracemalloc

import pytest

from prefillwatch.analysis.requests.models import MAX_NAME_CHARACTERS, OTHER, ModelNames


def test_only_what_upstream_serves_has_a_label() -> None:
    names = ModelNames()
    names.serve(["base", "base-lora"])
    assert names.admit("base") == "base"
    assert names.admit("base-lora") == "base-lora"
    assert names.admit("gpt-9") == OTHER
    assert names.labels == (OTHER, "base", "base-lora")
    assert [names.number(label) for label in names.labels] == [0, 1, 2]


@pytest.mark.parametrize("name", [None, ""])
def test_a_request_without_a_model_is_for_the_first_one_served(name: str | None) -> None:
    names = ModelNames()
    assert names.admit(name) == OTHER, "nothing is known yet"
    names.serve(["base", "lora"])
    assert names.admit(name) == "base"
    names.serve([])
    assert names.admit(name) == OTHER


def test_an_adapter_comes_and_goes() -> None:
    names = ModelNames()
    names.serve(["base"])
    assert names.admit("lora") == OTHER
    names.serve(["base", "lora"])
    assert names.admit("lora") == "lora"
    names.serve(["base"])
    assert names.admit("lora") == OTHER
    assert names.labels == (OTHER, "lora"), "its counters stay while there is room"
    names.serve(["base", "lora"])
    assert names.admit("lora") == "lora"


def test_what_goes_up_for_a_label_comes_down_for_it() -> None:
    """The list changes while requests run: each is released under the label it came in with."""
    names = ModelNames()
    inflight: dict[str, int] = {}

    def begin(name: str) -> str:
        label = names.admit(name)
        inflight[label] = inflight.get(label, 0) + 1
        return label

    running = [begin("lora")]
    names.serve(["base", "lora"])
    running += [begin("lora"), begin("base")]
    names.serve(["base"])
    running += [begin("lora")]
    for label in running:
        names.release(label)
        inflight[label] -= 1
    assert set(inflight.values()) == {0}
    for label in names.labels:
        with pytest.raises(ValueError, match="more often"):
            names.release(label)


def test_releasing_a_name_that_never_was_is_an_error_that_does_not_repeat_it() -> None:
    with pytest.raises(ValueError, match="more often") as error:
        ModelNames().release("secret-name")
    assert "secret" not in str(error.value)


def test_beyond_the_cap_everything_is_other() -> None:
    names = ModelNames(cap=3)
    names.serve([f"adapter-{i}" for i in range(10)])
    labels = [names.admit(f"adapter-{i}") for i in range(10)]
    assert labels == ["adapter-0", "adapter-1", "adapter-2", *[OTHER] * 7]
    assert names.take_retired() == []


def test_a_place_is_given_up_only_by_a_name_unserved_and_unused() -> None:
    names = ModelNames(cap=2)
    names.serve(["old", "older"])
    running = names.admit("old")
    names.release(names.admit("older"))

    names.serve(["old", "new"])
    assert names.admit("new") == "new"
    assert names.take_retired() == [(2, "older")]
    assert names.take_retired() == []
    assert names.labels == (OTHER, "old", "new")
    with pytest.raises(KeyError):
        names.number("older")

    names.serve(["newest"])
    assert names.admit("newest") == OTHER, "both are still held"
    names.release(running)
    assert names.admit("newest") == "newest"
    assert names.number("newest") == 1
    assert names.take_retired() == [(1, "old")]


def test_without_a_list_a_name_is_known_once_upstream_answered_for_it() -> None:
    names = ModelNames()
    first = names.admit("mistral")
    assert first == OTHER
    names.answered("mistral")
    assert names.admit("mistral") == "mistral"
    names.release(first)


def test_the_list_overrules_what_was_seen_to_work() -> None:
    names = ModelNames()
    names.answered("anything-goes")
    names.serve(["base"])
    names.answered("anything-goes")
    assert names.admit("anything-goes") == OTHER


def test_without_a_list_an_upstream_that_answers_to_any_name_fills_the_cap_and_no_more() -> None:
    names = ModelNames(cap=32)
    for i in range(1000):
        names.answered(f"made-up-{i}")
        names.release(names.admit(f"made-up-{i}"))
    assert len(names.labels) == 33


@pytest.mark.parametrize("listed", [True, False])
def test_a_hundred_thousand_made_up_names_leave_nothing_behind(listed: bool) -> None:
    names = ModelNames()
    if listed:
        names.serve(["base"])

    def storm(start: int, count: int) -> None:
        for i in range(start, start + count):
            names.release(names.admit(f"made-up-{i}"))
            names.answered(f"made-up-{i}")

    storm(0, 1000)
    tracemalloc.start()
    try:
        storm(1000, 100_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20_000
    assert len(names.labels) <= 33


@pytest.mark.parametrize("name", ["a" * (MAX_NAME_CHARACTERS + 1), "two\nlines", "\ud800", OTHER, ""])
def test_names_that_cannot_be_labels_are_other(name: str) -> None:
    names = ModelNames()
    names.answered(name)
    assert names.admit(name) == OTHER
    names.serve([name])
    assert names.admit(name) == OTHER
    assert names.labels == (OTHER,)


def test_a_cap_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        ModelNames(cap=0)


def test_a_name_that_upstream_answers_as_another_stands_for_it() -> None:
    names = ModelNames(cap=2)
    names.serve(["tiny.gguf"])
    assert names.admit("gpt-3.5-turbo") == OTHER
    names.stands_for("gpt-3.5-turbo", "tiny.gguf")
    assert names.admit("gpt-3.5-turbo") == "tiny.gguf"
    names.serve(["larger.gguf"])
    assert names.admit("gpt-3.5-turbo") == OTHER, "what it stood for is not served any more"


def test_names_that_stand_for_others_are_bounded_and_served_ones_stand_for_themselves() -> None:
    names = ModelNames(cap=2)
    names.serve(["a", "b"])
    names.stands_for("b", "a")
    for number in range(100):
        names.stands_for(f"made-up-{number}", "a")
    assert names.admit("b") == "b"
    assert names.admit("made-up-0") == OTHER
    assert names.admit("made-up-99") == "a"
