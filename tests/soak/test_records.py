"""What was done to the processes excuses what was open then, and nothing else; books and memory are compared."""

from __future__ import annotations

from tests.soak.plans import Answer, Leave, Plan, Toxic
from tests.soak.records import Records, counted, growth
from tests.soak.seen import Seen
from tests.soak.stage import Sample


def broken(started_s: float, ended_s: float) -> Seen:
    seen = Seen(Plan(Answer(7, 3, 0.1)), started_s=started_s, status=200)
    seen.broke_off(ended_s)
    return seen


def ended(plan: Plan, tokens: int, how: str) -> Seen:
    seen = Seen(plan, status=200, tokens=[plan.answer.token(index) for index in range(tokens)], done=how == "complete")
    getattr(seen, how)(1.0)
    return seen


def test_an_excuse_holds_for_what_was_open_then() -> None:
    records = Records()
    records.excuse(10.0, 12.0)
    records.add(broken(5.0, 11.0))
    records.add(broken(1.0, 2.0))
    records.add(broken(20.0, 21.0))
    records.judge()
    assert len(records.wrong) == 2


def test_what_was_judged_is_not_judged_again() -> None:
    records = Records()
    records.add(broken(1.0, 2.0))
    assert len(records.judge()) == 1
    assert records.judge() == []
    assert len(records.wrong) == 1


def test_streams_told_to_be_lost_are_held_against_those_that_broke() -> None:
    records = Records()
    for _ in range(40):
        records.add(broken(5.0, 11.0))
    assert records.lost_since(10.0, 41) == []
    assert records.lost_since(10.0, 0) == ["0 streams are told to be lost with a relay, 40 broke"]


def test_the_books_are_held_against_what_clients_counted() -> None:
    whole = ended(Plan(Answer(1, 3, 0.1)), 3, "complete")
    left = ended(Plan(Answer(2, 9, 0.1), leave=Leave.STREAMING), 3, "left")
    cut = ended(Plan(Answer(3, 4, 0.1, toxic=Toxic.CUT)), 2, "broke_off")
    no_head = ended(Plan(Answer(4, 4, 0.1), leave=Leave.IN_HEAD), 0, "left")
    clients = counted([whole, left, cut, no_head])
    right = {"ok": 1.0, "client_closed": 1.0, "upstream_truncated": 1.0}
    assert clients.against(right, 8) == []
    assert clients.against(right, 16) == []
    assert clients.against(right, 7) == ["the books have 7 tokens, the clients 8 to 16"]
    assert clients.against({**right, "ok": 2.0}, 8) == ["the books have 2 requests as ok, the clients 1"]
    assert clients.against({**right, "empty": 1.0}, 8) == ["the books have 1 requests as empty, the clients 0"]


def held(pid: int, mebibytes: int, descriptors: int = 10) -> dict[str, list[Sample]]:
    return {"relay": [Sample(pid, descriptors, mebibytes * 2**20)]}


def test_memory_that_rises_is_found_and_memory_that_only_warms_up_is_not() -> None:
    assert growth([held(1, size) for size in (20, 60, 62, 61, 62, 61)]) == []
    assert growth([held(1, size) for size in (20, 60, 62, 90, 120, 122)])


def test_descriptors_that_rise_are_found() -> None:
    assert growth([held(1, 20, count) for count in (10, 10, 10, 10, 300, 400)])


def test_clients_that_go_to_another_relay_are_no_growth() -> None:
    samples = [{"relay": [Sample(1, 2000, 2**20), Sample(2, 2000, 2**20)]}] * 4
    samples += [{"relay": [Sample(1, 3000, 2**20), Sample(3, 1000, 2**20)]}] * 2
    assert growth(samples) == []


def test_a_process_that_was_started_meanwhile_is_not_compared() -> None:
    assert growth([held(1, 20), held(1, 20), held(1, 20), held(2, 20), held(2, 90), held(2, 120)]) == []
