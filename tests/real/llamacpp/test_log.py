"""The log of a server read as steps: a page of it as it was, with texts left out."""

from __future__ import annotations

from tests.real.llamacpp.log import Clock, Step, read_log

from prefillwatch.units import MS, NS

LOG = """\
0.14.483.244 D slot handle_last_: id  4 | task 3 | slot decode token, id=5546, n_ctx = 8192, n_tokens = 82
0.14.483.246 I slot   operator(): id  3 | task 55 | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 2512
0.14.483.788 I slot   operator(): id  3 | task 55 | cached n_tokens = 0, memory_seq_rm [0, end)
0.14.484.439 D srv        decode: n_batch (effective) = 2048, off = 0
--- a line without a time ---
0.16.123.952 D que  yield_to_que: done yielding to queue
0.16.125.581 D slot handle_last_: id  4 | task 3 | slot decode token, id=5546, n_ctx = 8192, n_tokens = 83
0.16.125.686 I slot   operator(): id  3 | task 55 | cached n_tokens = 2044, memory_seq_rm [2044, end)
0.16.126.859 I slot init_sampler: id  3 | task 55 | init sampler, took 1.12 ms, tokens: text = 2512, total = 2512
0.16.126.878 D srv        decode: n_batch (effective) = 2048, off = 0
\x1b[0m0.16.675.895 D que  yield_to_que: done yielding to queue
0.16.677.707 D slot handle_last_: id  3 | task 55 | slot decode token, id=1320, n_ctx = 8192, n_tokens = 2512
1.16.677.717 D srv        decode: n_batch (effective) = 2048, off = 0
1.16.687.717 D que  yield_to_que: done yielding to queue
"""


def told(step: Step) -> list[tuple[int, str, int, int, bool]]:
    return [(each.task, each.kind, each.tokens, each.before, each.gives_token) for each in step.work]


def test_a_prompt_in_two_steps_beside_a_stream() -> None:
    first, second, third = read_log(LOG.splitlines(), Clock(5 * NS))
    assert told(first) == [(3, "d", 1, 0, True), (55, "p", 2044, 0, False)]
    assert told(second) == [(3, "d", 1, 0, True), (55, "p", 468, 2044, True)]
    assert told(third) == [(55, "d", 1, 0, True)]
    assert [each.length for each in first.work] == [0, 2512]
    assert (first.scheduled_ns, first.done_ns) == (19 * NS + 484_439_000, 21 * NS + 123_952_000)
    assert third.done_ns - third.scheduled_ns == 10 * MS


def test_a_prompt_that_is_given_up_has_what_its_slot_kept() -> None:
    log = """\
0.01.000.000 I slot   operator(): id  3 | task 7 | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 6000
0.01.000.001 I slot   operator(): id  3 | task 7 | cached n_tokens = 40, memory_seq_rm [40, end)
0.01.000.002 D srv        decode: n_batch (effective) = 2048, off = 0
0.02.000.000 D que  yield_to_que: done yielding to queue
0.02.000.001 I slot      release: id  3 | task 7 | stop processing: n_tokens = 2082
"""
    (step,) = read_log(log.splitlines(), Clock(0))
    assert told(step) == [(7, "p", 2042, 40, False)]
