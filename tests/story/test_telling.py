"""What the story says, by what is known."""

from __future__ import annotations

import msgspec
from tests.story.facts import WAITED, account, incident, stream

from prefillwatch.contract.causes import CAUSES
from prefillwatch.story import Account, Engine, Prompt, Stop, markdown, tell


def story(told: Account) -> str:
    return markdown(tell(told, "run.pfw"))


def section(text: str, title: str) -> str:
    _, _, rest = text.partition(f"## {title}\n")
    assert rest, text
    return rest.partition("\n## ")[0]


def test_it_begins_with_who_did_what_to_whom() -> None:
    text = story(account())
    assert text.startswith("# 2 streams stood still for 600 ms: a prompt was being read\n")
    assert "2025-12-01 12:00:00.250 UTC" in text
    assert "the request `document` was handed to the server with a prompt of about 4,000 tokens" in text
    assert "read it in 2 steps (300 ms and 300 ms)" in text
    assert "first token came 620 ms after it was sent" in text
    assert "All 2 streams stood still, 4 gaps in all" in text


def test_a_prompt_partly_in_the_cache_says_what_had_to_be_computed() -> None:
    prompt = Prompt(request_id="a", tokens=4000, uncached=1000, exact=True, sent=0.0, share=1.0)
    assert "a prompt of 4,000 tokens, 1,000 of which it had to compute" in story(account(prompts=(prompt,)))


def test_what_each_stream_lost() -> None:
    lost = section(story(account()), "What each stream lost")
    assert "| `one` | 2 | 300 ms | 550 ms |" in lost


def test_of_many_streams_the_rest_is_counted() -> None:
    many = account(streams=tuple(stream(f"s{number}") for number in range(40)), stream_count=300)
    lost = section(story(many), "What each stream lost")
    assert "`s19`" in lost
    assert "`s20`" not in lost
    assert "And 280 more streams." in lost


def test_the_same_prompt_under_the_advised_budget() -> None:
    helped = section(story(account()), "What would have helped")
    assert "| as it was | 2,002 | 2 | 300 ms | 600 ms |" in helped
    assert "| as advised | 560 | 8 | 98 ms | 720 ms |" in helped
    assert "`alerts/runbooks/PrefillInterference.md`" in helped


def test_without_a_learned_cost_it_says_so() -> None:
    advice = "no advice yet: 3 engine steps with prompts were seen"
    helped = section(story(account(now=None, then=None, engine=Engine(), advice=advice)), "What would have helped")
    assert "no advice yet: 3 engine steps" in helped
    assert "as it was" not in helped


def test_advice_that_changes_nothing_is_no_second_row() -> None:
    same = account().now
    assert "as advised" not in story(account(then=same))


def test_an_incident_that_lasts_is_not_over() -> None:
    lasts = account(
        incident=incident(ongoing=True), streams=(stream("one", Stop(0.0, 0.3, 0.2), Stop(0.3, None, 0.2)),)
    )
    text = story(lasts)
    assert "It is not over yet" in text
    assert "The verdict is provisional" in text
    assert "300 ms so far" in text


def test_of_a_wait_it_says_who_waited() -> None:
    waits = account(
        incident=incident(kind="wait", cause="queueing", victims=1, evidence=WAITED, worst_gap_seconds=8.0),
        streams=(stream("late", Stop(0.0, 8.0, 7.9)),),
        prompts=(),
        steps=(),
        subject=None,
        now=None,
        then=None,
    )
    text = story(waits)
    assert "1 request waited for a first token, up to 8 s." in text
    assert "| `late` | 1 | 8 s | 7.9 s |" in section(text, "Who waited")
    assert "40,000 prompt tokens of others" in section(text, "What speaks for it, and what against")
    assert "`alerts/runbooks/QueueSaturation.md`" in text


def test_every_cause_can_be_told() -> None:
    for cause in CAUSES:
        for kind, evidence in (("freeze", account().incident["evidence"]), ("wait", WAITED)):
            text = story(account(incident=incident(kind=kind, cause=cause.name, evidence=evidence)))
            assert cause.words in text
            assert cause.runbook in text


def test_an_account_with_hardly_anything_in_it_can_be_told() -> None:
    bare = incident(cause="unattributed", evidence={"delays": 1}, baseline_gap_seconds=None, culprit_count=0)
    text = story(Account(incident=bare))
    assert "cause unknown" in text
    assert "`abc-7`, from `run.pfw`" in text


def test_a_prompt_that_nobody_knows_more_of_is_no_row() -> None:
    steps = tuple(msgspec.structs.replace(step, parts=()) for step in account().steps)
    assert "of nobody whom we know" in section(story(account(steps=steps)), "Step by step")


def test_it_is_kept_as_json_and_read_again() -> None:
    assert msgspec.json.decode(msgspec.json.encode(account()), type=Account) == account()
