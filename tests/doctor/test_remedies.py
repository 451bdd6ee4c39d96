"""Remedies in the flags of the server that is looked at."""

from __future__ import annotations

import pytest

from prefillwatch.contract.causes import BY_NAME, ENGINE_PAUSE, PREEMPTION, PREFILL
from prefillwatch.doctor.remedies import for_server, has_foreign_flags

BUDGET = "--enable-chunked-prefill, --max-num-batched-tokens 368 keeps gaps under 100 ms"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("vllm", BUDGET),
        ("llamacpp", "-b 368 (and -ub no larger) keeps gaps under 100 ms"),
        ("sglang", "--chunked-prefill-size 368 keeps gaps under 100 ms"),
        ("trtllm", "--enable-chunked-prefill, --max_num_tokens 368 keeps gaps under 100 ms"),
        ("", BUDGET),
    ],
)
def test_a_budget(kind: str, said: str) -> None:
    assert for_server(kind, BUDGET) == said


def test_a_flag_without_its_value() -> None:
    remedy = for_server("llamacpp", BY_NAME[PREEMPTION].remedy)
    assert "--parallel lower" in remedy
    assert "leave -b (and -ub no larger) alone" in remedy
    assert "--max-num-seqs" not in remedy


def test_what_has_no_other_name_stays_and_is_said_to_be_foreign() -> None:
    remedy = for_server("llamacpp", BY_NAME[PREFILL].remedy)
    assert remedy.startswith("-b (and -ub no larger) or --long-prefill-token-threshold lower")
    assert has_foreign_flags("llamacpp", remedy)
    assert not has_foreign_flags("llamacpp", for_server("llamacpp", BUDGET))
    assert not has_foreign_flags("llamacpp", "")
    assert not has_foreign_flags("sglang", for_server("sglang", "--max-num-seqs higher, or more replicas"))
    assert BY_NAME[ENGINE_PAUSE].remedy
