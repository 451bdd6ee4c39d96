from __future__ import annotations

from tests.doctor.making import first_tokens, gaps
from tests.doctor.test_trust import TRUST

from prefillwatch.doctor.figures import Comparison, Figures, Level, Moment
from prefillwatch.doctor.finding import Finding, Seen
from prefillwatch.doctor.histogram import Histogram
from prefillwatch.doctor.tradeoffs import first_tokens_for_gaps, single_user, throughput_for_tail

EVEN = gaps((1000, 0.02))
UNEVEN = gaps((1000, 0.02), (60, 0.8))
SLOW, QUICK = first_tokens((20, 3.0)), first_tokens((20, 0.9))
SHORT, LONG = gaps((60, 0.25)), gaps((60, 0.8))

#: First tokens, and gaps beside them, by prompt size.
Sizes = dict[str, tuple[Histogram, Histogram]]


def compare(before: Sizes, now: Sizes, seconds: float = 60.0) -> Finding:
    comparison = Comparison(
        gaps=EVEN,
        gaps_beside={size: beside for size, (_, beside) in before.items()},
        first_tokens={size: first for size, (first, _) in before.items()},
        levels={},
    )
    figures = Figures(
        server="prefillwatch",
        gaps=UNEVEN,
        gaps_beside={size: beside for size, (_, beside) in now.items()},
        first_tokens={size: first for size, (first, _) in now.items()},
        before=comparison,
        seconds=seconds,
        trust=TRUST,
    )
    return first_tokens_for_gaps(figures)


def test_first_tokens_came_sooner_and_gaps_beside_them_got_longer() -> None:
    found = compare({"2k-8k": (SLOW, SHORT)}, {"2k-8k": (QUICK, LONG)})
    assert found.seen is Seen.YES
    assert found.words.startswith("Prompts of 2k-8k tokens: the p90 first token went from ")
    assert "the p90 gap beside them from 290 ms before to 975 ms now" in found.words


def test_one_size_is_enough() -> None:
    same = (SLOW, SHORT)
    found = compare({"0-512": (SLOW, SHORT), "8k-32k": same}, {"0-512": (QUICK, LONG), "8k-32k": same})
    assert found.seen is Seen.YES
    assert "Prompts of 0-512 tokens" in found.words


def test_only_one_of_both_is_no_trade() -> None:
    assert compare({"2k-8k": (SLOW, SHORT)}, {"2k-8k": (QUICK, SHORT)}).seen is Seen.NO
    assert compare({"2k-8k": (SLOW, SHORT)}, {"2k-8k": (SLOW, LONG)}).seen is Seen.NO
    assert compare({"2k-8k": (QUICK, SHORT)}, {"2k-8k": (SLOW, LONG)}).seen is Seen.NO
    assert compare({"2k-8k": (SLOW, LONG)}, {"2k-8k": (QUICK, SHORT)}).seen is Seen.NO


def test_another_mix_of_sizes_is_no_change() -> None:
    assert compare({"2k-8k": (SLOW, LONG)}, {"0-512": (QUICK, SHORT)}).seen is Seen.UNKNOWN
    before = {"0-512": (QUICK, SHORT), "2k-8k": (SLOW, LONG)}
    more_documents = {"0-512": (QUICK, SHORT), "2k-8k": (SLOW.plus(SLOW), LONG.plus(LONG))}
    assert compare(before, more_documents).seen is Seen.NO


def test_a_difference_within_one_bucket_is_none() -> None:
    slow, quick = first_tokens((20, 2.4)), first_tokens((20, 1.2))
    assert compare({"2k-8k": (slow, SHORT)}, {"2k-8k": (quick, LONG)}).seen is Seen.NO


def test_too_few_to_compare() -> None:
    few = compare({"2k-8k": (first_tokens((5, 3.0)), SHORT)}, {"2k-8k": (QUICK, LONG)})
    assert few.seen is Seen.UNKNOWN
    assert "10 of one size are needed, and 20 gaps of others beside them" in few.words
    assert compare({"2k-8k": (SLOW, gaps((5, 0.25)))}, {"2k-8k": (QUICK, LONG)}).seen is Seen.UNKNOWN


def test_a_short_watch_is_another_load_by_chance() -> None:
    short = compare({"2k-8k": (SLOW, SHORT)}, {"2k-8k": (QUICK, LONG)}, seconds=10.0)
    assert short.seen is Seen.UNKNOWN
    assert short.words.startswith("10 s are too short to compare with the time before")


def throughput(before: Level, now: Level, gaps_now: Histogram) -> Finding:
    comparison = Comparison(
        gaps=EVEN, gaps_beside={}, first_tokens={}, levels={"0": Level(900.0, 0.0, 0.0), "5-8": before}
    )
    levels = {"0": Level(30.0, 0.0, 0.0), "5-8": now}
    figures = Figures(server="prefillwatch", gaps=gaps_now, levels=levels, before=comparison, seconds=60.0, trust=TRUST)
    return throughput_for_tail(figures)


def test_throughput_rose_and_the_tail_got_worse() -> None:
    found = throughput(Level(100.0, 20_000.0, 60.0), Level(30.0, 9_000.0, 20.0), UNEVEN)
    assert found.seen is Seen.YES
    assert found.words == "200 tokens/s before, 300 now; the p95 gap went from 20 ms before to 779 ms now."


def test_only_one_of_both_is_no_symptom() -> None:
    assert throughput(Level(100.0, 20_000.0, 60.0), Level(30.0, 9_000.0, 20.0), EVEN).seen is Seen.NO
    assert throughput(Level(100.0, 20_000.0, 60.0), Level(30.0, 6_100.0, 20.0), UNEVEN).seen is Seen.NO


def test_from_a_server_alone_a_rate_before_is_not_known() -> None:
    alone = Figures(server="vllm", gaps=UNEVEN, first_tokens={"": QUICK}, seconds=60.0, generated=5400.0)
    assert throughput_for_tail(alone).words == "90 tokens/s while watching, and no rate to compare with."
    assert throughput_for_tail(alone).unknown
    assert first_tokens_for_gaps(alone).seen is Seen.UNKNOWN
    assert first_tokens_for_gaps(alone).unknown == "first tokens, and gaps beside them, by prompt size"


def test_one_at_a_time_by_the_time_spent() -> None:
    figures = Figures(server="prefillwatch", gaps=EVEN, levels={"1": Level(9.0, 400.0, 2.0)}, trust=TRUST)
    assert single_user(figures).seen is Seen.YES
    assert not single_user(figures).is_trouble


def test_shared_time_between_the_looks_counts() -> None:
    levels = {"1": Level(9.0, 400.0, 2.0), "2": Level(1.0, 90.0, 0.0)}
    moments = (Moment(decoding=1),) * 9
    found = single_user(Figures(server="prefillwatch", gaps=EVEN, levels=levels, moments=moments, trust=TRUST))
    assert found.seen is Seen.NO
    assert found.words.startswith("10 % of the decoding time")


def test_by_the_looks_alone_where_time_is_not_told() -> None:
    def alone(*running: int) -> Seen:
        return single_user(Figures(server="vllm", gaps=EVEN, moments=tuple(Moment(running=n) for n in running))).seen

    assert alone(0, 1, 1) is Seen.YES
    assert alone(1, 2, 1) is Seen.NO
    assert alone(0, 0) is Seen.UNKNOWN
    assert alone() is Seen.UNKNOWN
