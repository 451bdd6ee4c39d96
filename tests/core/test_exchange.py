"""From tap records to metrics: requests and their ends, told as timelines in milliseconds."""

import json
import zlib

import pytest
from tests.core.script import DONE, Observed, Relay, chunk, stream_tokens, usage

from prefillwatch.analysis.settings import AnalysisSettings, Slo
from prefillwatch.export import table
from prefillwatch.export.registry import MAX_LABEL_SETS
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.tap import Finish, Kind, ResponseHead, encode_payload


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def relay(observed: Observed) -> Relay:
    return Relay(observed)


def test_a_stream_gives_ttft_gaps_and_counts(observed: Observed, relay: Relay) -> None:
    stream = relay.request(1000)
    stream_tokens(relay, stream, [1300, 1320, 1340, 1360])
    relay.data(1360, stream, usage(prompt=37, completion=4))
    relay.data(1361, stream, DONE)
    relay.end(1362, stream)
    relay.flush()
    observed.advance(3000)
    assert observed.sums(table.TIME_TO_FIRST_TOKEN) == {("m", "0-512"): pytest.approx(0.3)}
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 3}
    assert observed.sums(table.INTER_TOKEN_LATENCY) == {("m", "none"): pytest.approx(0.06)}
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 1}
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 4}
    assert observed.values(table.PROMPT_TOKENS) == {("m",): 37}
    assert observed.sums(table.TIME_PER_OUTPUT_TOKEN) == {("m",): pytest.approx(0.02)}
    assert observed.ledger.requests == {}


def test_while_it_runs_it_is_in_flight_and_afterwards_it_is_not(observed: Observed, relay: Relay) -> None:
    stream = relay.request(1000)
    relay.flush()
    observed.advance(1500)
    assert observed.values(table.PREFILLING_REQUESTS) == {("m",): 1}
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {("m",): pytest.approx(0.5)}
    stream_tokens(relay, stream, [1600])
    relay.flush()
    observed.advance(1800)
    assert observed.values(table.PREFILLING_REQUESTS) == {("m",): 0}
    assert observed.values(table.DECODING_STREAMS) == {("m",): 1}
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {}
    assert observed.values(table.OPEN_GAP) == {("m",): pytest.approx(0.2)}
    relay.end(1900, stream, Finish.CLIENT_CLOSED)
    relay.flush()
    observed.advance(2000)
    assert observed.values(table.DECODING_STREAMS) == {("m",): 0}
    assert observed.values(table.OPEN_GAP) == {}
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "client_closed"): 1}


def test_an_open_gap_is_a_frozen_stream_while_it_lasts(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0)
    stream_tokens(relay, stream, [100 + 20 * i for i in range(20)])
    relay.flush()
    observed.advance(550)
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 0}
    observed.advance(700)
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 1}
    assert observed.values(table.OPEN_GAP)[("m",)] == pytest.approx(0.22)


def test_a_reader_who_takes_nothing_is_no_frozen_stream(observed: Observed, relay: Relay) -> None:
    """We read no further for it, so its silence is its own; what is told of others stays."""
    asleep, awake = relay.request(0), relay.request(0)
    for stream in (asleep, awake):
        stream_tokens(relay, stream, [100 + 20 * i for i in range(20)])
    relay.add(481, asleep, Kind.BLOCKED)
    relay.data(9500, awake, chunk())
    relay.flush()
    observed.advance(9550)
    assert observed.values(table.OPEN_GAP) == {("m",): pytest.approx(0.05)}
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 0}
    assert observed.values(table.DECODING_STREAMS) == {("m",): 2}
    # It takes all, and now upstream is silent for longer than the client was.
    relay.add(9700, asleep, Kind.UNBLOCKED)
    relay.data(9701, asleep, chunk())
    relay.add(19000, awake, Kind.BLOCKED)
    relay.flush()
    observed.advance(19500)
    assert observed.values(table.OPEN_GAP) == {("m",): pytest.approx(10.0)}
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 2}


def test_gaps_that_overlap_a_prefill_are_told_apart(observed: Observed, relay: Relay) -> None:
    victims = [relay.request(0) for _ in range(3)]
    for victim in victims:
        stream_tokens(relay, victim, [100])
    times = [120 + 20 * i for i in range(96)] + [2300] + [2320 + 20 * i for i in range(50)]
    lump = 0
    for at_ms in times:
        for victim in victims:
            relay.data(at_ms, victim, chunk())
        if at_ms == 2000:
            lump = relay.request(2005, {"messages": [{"role": "user", "content": "word " * 3000}]})
        if at_ms == 2300:
            stream_tokens(relay, lump, [2303])
        relay.flush()
        observed.advance(at_ms)
    observed.advance(6000)
    counts = observed.counts(table.INTER_TOKEN_LATENCY)
    assert counts == {("m", "none"): 3 * (len(times) - 1), ("m", "2k-8k"): 3}
    p99 = observed.values(table.INTER_TOKEN_LATENCY_P99)
    assert p99[("m", "10s", "prefill")] == pytest.approx(0.28, rel=0.01)
    assert p99[("m", "10s", "clear")] == pytest.approx(0.02, rel=0.01)
    assert observed.values(table.INTERFERENCE)[("m", "10s")] == pytest.approx(14, rel=0.03)
    observed.advance(12_500)  # nothing tells the true size of the prompt: the estimate has to do
    assert observed.values(table.PROMPT_LENGTH_MAX)[("m", "10s")] > 2000


def test_several_events_in_one_read_are_one_gap(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0)
    stream_tokens(relay, stream, [100])
    relay.data(184, stream, chunk() * 4)
    relay.flush()
    observed.advance(2000)
    assert observed.sums(table.INTER_TOKEN_LATENCY) == {("m", "none"): pytest.approx(0.084)}
    assert observed.values(table.COALESCED_TOKENS) == {("m",): 3}
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 5}


def test_a_read_in_pieces_is_one_read(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0)
    stream_tokens(relay, stream, [100])
    data = chunk() * 2
    relay.add(150, stream, Kind.DATA_PART, data[:100])
    relay.add(150, stream, Kind.DATA, data[100:])
    relay.flush()
    observed.advance(2000)
    assert observed.sums(table.INTER_TOKEN_LATENCY) == {("m", "none"): pytest.approx(0.05)}
    assert observed.values(table.COALESCED_TOKENS) == {("m",): 1}


def test_choices_are_streams_of_their_own(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0, {"n": 2})
    relay.response(90, stream)
    for at_ms in (100, 150, 200):
        relay.data(at_ms, stream, chunk(index=0) + chunk(index=1))
    relay.data(230, stream, chunk(index=1))
    relay.flush()
    observed.advance(500)
    assert observed.values(table.DECODING_STREAMS) == {("m",): 2}
    observed.advance(2000)
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 5}
    assert observed.sums(table.INTER_TOKEN_LATENCY) == {("m", "none"): pytest.approx(0.23)}
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {}  # the size of the prompt may still become known
    relay.end(2100, stream)
    relay.flush()
    observed.advance(3000)
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {("m", "0-512"): 1}


def test_ttft_waits_for_the_true_size_of_the_prompt(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0, {"messages": [{"role": "user", "content": "x" * 3000}]})
    stream_tokens(relay, stream, [100, 120])
    relay.data(130, stream, usage(prompt=2500, completion=2, cached=2048) + DONE)
    relay.end(131, stream)
    relay.flush()
    observed.advance(1000)
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {("m", "2k-8k"): 1}
    assert observed.values(table.CACHED_PROMPT_TOKENS) == {("m",): 2048}


def test_a_stream_that_never_tells_its_size_is_told_by_estimate(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0, {"messages": [{"role": "user", "content": "x" * 4000}]})
    stream_tokens(relay, stream, [100, 120])
    relay.flush()
    observed.advance(10_000)
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {}
    observed.advance(10_300)
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {("m", "512-2k"): 1}


def test_usage_corrects_the_tokens_counted_by_events(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0)
    stream_tokens(relay, stream, [100, 120, 140])
    relay.data(150, stream, usage(prompt=5, completion=9) + DONE)
    relay.end(151, stream)
    relay.flush()
    observed.advance(1000)
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 9}
    assert observed.sums(table.TOKENS_PER_EVENT) == {("m",): pytest.approx(9)}
    assert observed.counts(table.TOKENS_PER_EVENT) == {("m",): 3}


@pytest.mark.parametrize("completion", [0, -3, 1 << 40])
def test_a_usage_that_cannot_be_is_ignored(observed: Observed, relay: Relay, completion: int) -> None:
    for at in (0, 1000):
        stream = relay.request(at)
        stream_tokens(relay, stream, [at + 100, at + 120, at + 140])
        relay.data(at + 150, stream, usage(prompt=5, completion=completion) + DONE)
        relay.end(at + 151, stream)
    relay.flush()
    observed.advance(3000)
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 6}
    assert observed.values(table.PROMPT_TOKENS) == {("m",): 10}
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 2}


def test_an_id_that_a_terminal_would_obey_is_escaped(observed: Observed, relay: Relay) -> None:
    named = relay.request(0, request_id="a\x9b2Jb")
    nameless = relay.request(0)
    stream_tokens(relay, nameless, [100])
    relay.response(200, named)
    relay.data(201, named, chunk())
    relay.data(202, nameless, chunk())
    relay.flush()
    assert observed.taps.relays[0].streams[named].request.request_id == "a\\x9b2Jb"
    third = relay.request(300)
    relay.response(301, third)
    relay.data(302, third, chunk().replace(b"chatcmpl-1", b"chat\xc2\x9b"))
    relay.flush()
    assert observed.taps.relays[0].streams[third].request.request_id == "chat\\x9b"


def test_more_events_than_tokens_are_made_up_for_by_later_ones(observed: Observed, relay: Relay) -> None:
    first = relay.request(0)
    stream_tokens(relay, first, [100, 120, 140, 160])
    relay.data(165, first, usage(prompt=5, completion=2) + DONE)
    relay.end(166, first)
    relay.flush()
    observed.advance(500)
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 4}
    second = relay.request(600)
    stream_tokens(relay, second, [700, 720, 740])
    relay.flush()
    observed.advance(1000)
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 5}


@pytest.mark.parametrize(
    ("finish", "status", "data", "outcome"),
    [
        (Finish.COMPLETE, 200, chunk() + DONE, "ok"),
        (Finish.COMPLETE, 200, DONE, "empty"),
        (Finish.COMPLETE, 200, chunk() + b'data: {"error":{"message":"x","code":504}}\n\n' + DONE, "error_in_stream"),
        (Finish.UPSTREAM_TRUNCATED, 200, chunk(), "upstream_truncated"),
        (Finish.CLIENT_CLOSED, 200, chunk(), "client_closed"),
        (Finish.COMPLETE, 500, b"", "error"),
        (Finish.COMPLETE, 400, b"", "rejected"),
    ],
)
def test_outcomes(observed: Observed, relay: Relay, finish: Finish, status: int, data: bytes, outcome: str) -> None:
    stream = relay.request(0)
    relay.response(50, stream, status)
    if data:
        relay.data(60, stream, data)
    relay.end(70, stream, finish, status)
    relay.flush()
    observed.advance(500)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", outcome): 1}


SSE, JSON = "text/event-stream", "application/json"


@pytest.mark.parametrize(
    ("content_type", "encoding", "data", "outcome"),
    [
        (JSON, "", b'{"choices":[{"message":{"content":"hi"}}]}', "ok"),  # a server without usage
        (JSON, "", b'{"choices":[{"message":{"content":""}}],"usage":{"completion_tokens":0}}', "empty"),
        (JSON, "", b'{"choices":[{"message":{"content":"the end of it is not', "ok"),
        (SSE, "compress", b"bytes", "ok"),
        (SSE, "gzip", chunk() + DONE, "ok"),
        ("audio/wav", "", b"RIFF", "ok"),
        ("", "", chunk() + DONE, "ok"),
    ],
)
def test_only_an_answer_that_would_have_shown_its_tokens_is_empty(
    observed: Observed, relay: Relay, content_type: str, encoding: str, data: bytes, outcome: str
) -> None:
    stream = relay.request(0)
    relay.add(50, stream, Kind.RESPONSE, encode_payload(ResponseHead(200, content_type, encoding)))
    relay.data(60, stream, data)
    relay.end(70, stream)
    relay.flush()
    observed.advance(500)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", outcome): 1}


@pytest.mark.parametrize("finish", [Finish.REJECTED, Finish.CLIENT_CLOSED])
def test_an_exchange_may_end_before_its_body_came(observed: Observed, relay: Relay, finish: Finish) -> None:
    stream = relay.request(0)
    relay.flush(lose=True)
    other = relay.request(10)
    relay.end(20, other, finish, 413 if finish is Finish.REJECTED else 0)
    relay.end(20, stream, finish)
    relay.flush()
    observed.advance(500)
    assert sum(observed.values(table.REQUESTS).values()) == 1
    assert observed.taps.out_of_order == 0


def test_a_json_answer_has_tokens_but_no_ttft(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0, {"stream": False})
    relay.response(900, stream, content_type="application/json")
    body = (
        b'{"id":"chatcmpl-1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi you"}}],'
        b'"usage":{"prompt_tokens":11,"completion_tokens":2,"total_tokens":13}}'
    )
    relay.data(900, stream, body)
    relay.flush()
    observed.advance(800)
    assert observed.values(table.OLDEST_FIRST_TOKEN_WAIT) == {}
    relay.end(901, stream)
    relay.flush()
    observed.advance(1500)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 1}
    assert observed.values(table.GENERATED_TOKENS) == {("m",): 2}
    assert observed.values(table.PROMPT_TOKENS) == {("m",): 11}
    assert observed.counts(table.TIME_TO_FIRST_TOKEN) == {}


def test_slo_of_the_configuration_and_of_the_request() -> None:
    observed = Observed(AnalysisSettings(slo=Slo(ttft=0.2, tpot=0.05)))
    relay = Relay(observed)
    kept, late, own = relay.request(0), relay.request(0), relay.request(0, slo_ttft_ms=500.0)
    for stream, first in ((kept, 150), (late, 300), (own, 300)):
        stream_tokens(relay, stream, [first, first + 40])
        relay.data(first + 41, stream, DONE)
        relay.end(first + 42, stream)
    relay.flush()
    observed.advance(1000)
    assert observed.values(table.REQUESTS_WITHIN_SLO) == {("m",): 2}


def test_late_tokens_miss_their_deadlines() -> None:
    observed = Observed(AnalysisSettings(slo=Slo(itl=0.1)))
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100, 150, 200, 1000])
    relay.flush()
    observed.advance(2000)
    assert observed.values(table.TOKEN_DEADLINES) == {("m",): 3 + 6}
    assert observed.values(table.TOKEN_DEADLINE_MISSES) == {("m",): 7}


@pytest.mark.parametrize(
    ("tokens", "choices", "ended_ms", "kept"),
    [
        (11, 1, 690, 1),
        (11, 1, 710, 0),
        (22, 2, 690, 1),
        (22, 2, 710, 0),
        (1, 1, 190, 1),
        (1, 1, 210, 0),
        (0, 1, 190, 0),
    ],
)
def test_an_answer_in_one_piece_is_there_when_its_last_token_was_due(
    tokens: int, choices: int, ended_ms: float, kept: int
) -> None:
    """The first within 200 ms, each of the others 50 ms later."""
    observed = Observed(AnalysisSettings(slo=Slo(ttft=0.2, tpot=0.05)))
    relay = Relay(observed)
    stream = relay.request(0, {"messages": [], "stream": False, "n": choices})
    relay.response(ended_ms - 2, stream, content_type=JSON)
    told = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}})
    relay.data(ended_ms - 1, stream, told.encode())
    relay.end(ended_ms, stream)
    relay.flush()
    observed.advance(1000)
    assert sum(observed.values(table.REQUESTS_WITHIN_SLO).values()) == kept


@pytest.mark.parametrize("finish", [Finish.UPSTREAM_TRUNCATED, Finish.CLIENT_CLOSED, Finish.CUT])
def test_the_silence_before_an_answer_broke_off_has_deadlines(finish: Finish) -> None:
    observed = Observed(AnalysisSettings(slo=Slo(itl=0.1)))
    relay = Relay(observed)
    stream = relay.request(0)
    stream_tokens(relay, stream, [100, 150, 200])
    relay.end(1000, stream, finish)
    relay.flush()
    observed.advance(2000)
    assert observed.values(table.TOKEN_DEADLINES) == {("m",): 2 + 7}
    assert observed.values(table.TOKEN_DEADLINE_MISSES) == {("m",): 7}
    assert sum(observed.values(table.REQUESTS_WITHIN_SLO).values()) == 0


def test_throughput_by_concurrency(observed: Observed, relay: Relay) -> None:
    one, two = relay.request(0), relay.request(0)
    stream_tokens(relay, one, [100 + 20 * i for i in range(11)])
    relay.end(310, one)
    relay.flush()
    observed.advance(400)
    stream_tokens(relay, two, [500, 520])
    relay.flush()
    observed.advance(1000)
    seconds = observed.values(table.CONCURRENCY_SECONDS)
    assert seconds[("m", "1")] == pytest.approx(0.21 + 0.5, abs=0.01)
    assert observed.values(table.CONCURRENCY_TOKENS)[("m", "1")] == 13
    assert observed.values(table.CONCURRENCY_REQUESTS)[("m", "1")] == 1


def test_quick_answers_one_after_the_other_are_one_stream_at_a_time(observed: Observed, relay: Relay) -> None:
    """Many begin and end between two beats, each prompt alone: nobody decodes beside it, so no step is measured."""
    for number in range(40):
        at = 1000 + 50 * number
        stream = relay.request(at, {"messages": [{"role": "user", "content": "x" * 1200}]})
        stream_tokens(relay, stream, [at + 20, at + 30, at + 40])
        relay.end(at + 41, stream)
        if number % 4 == 3:
            relay.flush()
            observed.advance(at + 45)
    observed.advance(5000)
    assert set(observed.values(table.CONCURRENCY_TOKENS)) == {("m", "0"), ("m", "1")}
    assert observed.values(table.CONCURRENCY_TOKENS)[("m", "1")] == 40 * 3
    assert observed.values(table.CONCURRENCY_REQUESTS)[("m", "1")] == 40
    assert observed.values(table.CONCURRENCY_SECONDS)[("m", "1")] == pytest.approx(40 * 0.021, abs=0.01)
    assert {labels[1] for labels, count in observed.counts(table.STEP_TIME).items() if count} == {"none"}


def test_other_endpoints_are_only_counted(observed: Observed, relay: Relay) -> None:
    stream = relay.request(0, path="/v1/models")
    relay.response(5, stream, content_type="application/json")
    relay.end(6, stream)
    relay.flush()
    observed.advance(500)
    assert observed.values(table.REQUESTS) == {("m", "models", "ok"): 1}
    assert observed.counts(table.PROMPT_LENGTH) == {}


def test_a_server_that_answers_to_any_name_tells_which_model_it_is() -> None:
    """Clients send a name that is on no list; streamed or not, the answer has the served one."""
    observed = Observed(served=("tiny.gguf",))
    relay = Relay(observed)
    named = {"model": "tiny.gguf", "choices": [{"index": 0, "delta": {"content": "a"}}]}
    whole = {"model": "tiny.gguf", "choices": [{"index": 0}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    for body, content_type in (
        (b"data: " + json.dumps(named).encode() + b"\n\n", "text/event-stream"),
        (json.dumps(whole).encode(), "application/json"),
    ):
        stream = relay.request(0, {"model": "gpt-3.5-turbo"})
        relay.response(5, stream, content_type=content_type)
        relay.data(6, stream, body)
        relay.end(7, stream)
    relay.flush()
    observed.advance(500)
    assert observed.values(table.REQUESTS) == {("tiny.gguf", "chat_completions", "ok"): 2}
    assert observed.values(table.GENERATED_TOKENS) == {("tiny.gguf",): 5}
    relay.request(600, {"model": "gpt-3.5-turbo"})
    relay.flush()
    observed.advance(700)
    assert observed.values(table.PREFILLING_REQUESTS) == {("tiny.gguf",): 1}, "known by now what that name stands for"


def test_model_names_without_end_make_no_series() -> None:
    """More of them than a metric takes label sets."""
    names = MAX_LABEL_SETS + 1000
    observed = Observed(served=("m",))
    relay = Relay(observed)
    before = len(observed.registry.snapshot())
    for number in range(names):
        stream = relay.request(number, {"model": f"made-up-{number}"})
        relay.response(number, stream, 404, "application/json")
        relay.end(number, stream, status=404)
        if number % 2000 == 0:
            relay.flush()
            observed.advance(number)
    relay.flush()
    observed.advance(200_000)
    assert observed.values(table.REQUESTS) == {("other", "chat_completions", "rejected"): names}
    assert len(observed.registry.snapshot()) == before
    assert observed.ledger.requests == {}


def test_without_a_list_of_models_a_name_that_upstream_answers_to_is_taken() -> None:
    observed = Observed(served=())
    relay = Relay(observed)
    for name, status in (("real", 200), ("made-up", 404)):
        stream = relay.request(0, {"model": name})
        relay.response(10, stream, status)
        relay.data(20, stream, chunk() + DONE)
        relay.end(30, stream, status=status)
    relay.flush()
    observed.advance(500)
    assert observed.values(table.REQUESTS) == {
        ("real", "chat_completions", "ok"): 1,
        ("other", "chat_completions", "rejected"): 1,
    }


def test_a_prompt_that_begins_like_an_earlier_one_is_taken_for_cached_until_usage_says_otherwise(
    observed: Observed, relay: Relay
) -> None:
    document = "\n".join(f"line {number} of the document" for number in range(600))

    def ask(at_ms: float, question: str) -> int:
        return relay.request(at_ms, {"messages": [{"role": "user", "content": document + question}]})

    first = ask(100, "what?")
    relay.flush()
    assert observed.ledger.requests[1].likely_cached == 0
    stream_tokens(relay, first, [400])
    second = ask(500, "why?")
    relay.flush()
    request = observed.ledger.requests[2]
    assert request.likely_cached % 16 == 0
    assert request.prompt_tokens * 0.9 < request.likely_cached < request.prompt_tokens
    stream_tokens(relay, second, [600])
    relay.data(700, second, usage(prompt=5000, completion=1, cached=16) + DONE)
    relay.end(701, second)
    relay.flush()
    assert request.uncached_tokens == 5000 - 16
    observed.advance(1000)
    assert observed.values(table.CACHED_PROMPT_TOKENS) == {("m",): 16}  # by usage, never by what was expected


def test_a_server_without_a_prefix_cache_caches_nothing(observed: Observed, relay: Relay) -> None:
    observed.ledger.cache_reported(128, in_use=False)
    body = {"messages": [{"role": "user", "content": "again and again. " * 200}]}
    stream_tokens(relay, relay.request(100, body), [300])
    relay.request(400, body)
    relay.flush()
    assert observed.ledger.requests[2].likely_cached == 0


def test_an_answer_that_becomes_unreadable_is_not_silent(observed: Observed, relay: Relay) -> None:
    """Tokens go on coming, only that they cannot be seen."""
    stream = relay.request(0)
    relay.add(50, stream, Kind.RESPONSE, encode_payload(ResponseHead(200, SSE, "gzip")))
    packer = zlib.compressobj(wbits=31)
    for at_ms in range(100, 400, 20):
        relay.data(at_ms, stream, packer.compress(chunk()) + packer.flush(zlib.Z_SYNC_FLUSH))
    for at_ms in range(400, 9000, 20):
        relay.data(at_ms, stream, b"\xff" * 20)
    relay.flush()
    observed.advance(9000)
    assert observed.values(table.FROZEN_STREAMS) == {("m",): 0}
    assert observed.values(table.OPEN_GAP) == {}
    relay.end(9010, stream)
    relay.flush()
    observed.advance(10000)
    assert sum(observed.values(table.STALLS).values()) == 0
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 14}


def test_an_error_of_ours_costs_one_request(observed: Observed, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RecursionError("with words of the answer")

    broken, fine = relay.request(0), relay.request(0)
    stream_tokens(relay, broken, [100, 120])
    stream_tokens(relay, fine, [100, 120])
    relay.flush()
    with monkeypatch.context() as patched:
        patched.setattr(AnswerReader, "_feed_events", fails)
        relay.data(140, broken, b": its shape is not known\n\n")
        relay.flush()
    for stream in (broken, fine):
        relay.data(160, stream, chunk())
        relay.data(170, stream, DONE)
        relay.end(180, stream)
    relay.flush()
    observed.advance(1000)
    assert observed.values(table.REQUESTS) == {("m", "chat_completions", "ok"): 2}
    assert observed.counts(table.INTER_TOKEN_LATENCY) == {("m", "none"): 1 + 2}
