from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.wire import chat
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.facts import AnswerFacts
from prefillwatch.wire.template import NO_STRING, Constant, Counting, Tried, decode_string, learn, text_lengths


def probe(block: bytes) -> AnswerFacts:
    return AnswerReader("chat_completions", "text/event-stream")._probe(block)


def block(inside: str) -> bytes:
    return f'data: {{"id":"c","choices":[{inside}]}}\n\n'.encode()


USUAL = block('{"index":0,"delta":{"content":"Hi"},"finish_reason":null}')


def test_a_count_beyond_reason_is_read_the_long_way_where_it_is_ignored() -> None:
    event = (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}],'
        b'"usage":{"prompt_tokens":5,"completion_tokens":%d}}\n\n'
    )
    answer = AnswerReader("chat_completions", "text/event-stream")
    for count in (1, 2, 3, 1 << 40, 5):
        assert answer.feed(event % count) == 1
    assert answer.completion_tokens == 5


def test_a_shape_is_what_surrounds_the_text() -> None:
    template = learn(USUAL, probe, Tried())
    assert isinstance(template, Constant)
    assert template.head.endswith(b'"content":"')
    assert template.tail.startswith(b'"},"finish')
    facts = AnswerFacts()
    assert template.take(USUAL.replace(b"Hi", "für \\n".encode()), 0, facts) == len(USUAL) + 5
    assert (facts.token_events, facts.chars_in_read) == (1, 5)


def test_a_shape_that_was_tried_holds_for_streams_that_differ_in_identity_alone() -> None:
    def untried(block: bytes) -> AnswerFacts:
        raise AssertionError(block)

    event = (
        b'data: {"id":"%s","created":%s,"model":"m","choices":[{"index":2,"delta":{"content":"Hi"},"logprobs":%s}]}\n\n'
    )
    tried = Tried()
    learn(event % (b"a-1", b"17", b"null"), probe, tried)
    again = learn(event % (b"b-22", b"180", b"null"), untried, tried)
    assert isinstance(again, Constant)
    assert again.choice == 2
    assert again.head.startswith(b'data: {"id":"b-22","created":180,')
    for other in (
        event % (b"a-1", b"17", b"0"),
        event % (b'a-1","x":"y', b"17", b"null"),
        event % (b"\xff", b"17", b"null"),
        event % (b"", b"17", b"null"),
        event % (b"a-1", b"017", b"null"),
        event % (b"a-1", b'"17"', b"null"),
        event.replace(b'"index":2', b'"index":1') % (b"a-1", b"17", b"null"),
    ):
        with pytest.raises(AssertionError):
            learn(other, untried, tried)


def test_only_the_tried_shapes_that_were_found_last_are_kept() -> None:
    tried, event = Tried(), b'data: {"n":%d,"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    for number in range(200):
        assert learn(event % number, probe, tried) is not None
        assert tried.find(event % 0) is not None
    kept = [number for number in range(200) if tried.find(event % number) is not None]
    assert kept == [0, *range(200 - 15, 200)]


def first_reads(event: bytes, before: bytes = b"") -> tuple[AnswerReader, AnswerReader]:
    """The first event with text of a second stream, read the short way and the long way."""
    other = event.replace(b"a-1", b"b-22").replace(b":17,", b":180,")
    AnswerReader("chat_completions", "text/event-stream").feed(event)
    short, long = (AnswerReader("chat_completions", "text/event-stream", templates=each) for each in (True, False))
    for answer in (short, long):
        answer.feed(before)
        assert answer.feed(other) == (b'"index": 2' not in event)
    assert short.frame() == long.frame()
    assert short.progress() == long.progress()
    assert short.continuous is long.continuous
    return short, long


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"id":"a-1","created":17,"model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n',
        b'data: {"id": "a-1", "created": 17, "model": "m", "choices": [{"index": 2, "delta": {"content": "Hi"}}]}\n\n',
        b'data: {"created":17,"id":"a-1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n',
        b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a-1","function":{"arguments":"Hi"}}]}}]}\n\n',
        b'data: {"id":"a-1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',
        b'data: {"id":"a-1","usage":{"prompt_tokens":7},"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n',
        b'event: a\ndata: {"id":"a-1","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n',
    ],
)
@pytest.mark.parametrize("before", [b"", b": waiting\n\n", b'data: {"id":"b-22","choices":[{"delta":{}}]}\n\n'])
def test_the_first_event_of_a_stream_is_read_the_same_both_ways(event: bytes, before: bytes) -> None:
    short, long = first_reads(event, before)
    for answer in (short, long):
        answer.feed(event.replace(b"a-1", b"b-22").replace(b"Hi", b"") + b"data: [DONE]\n\n")
        answer.finish()
    assert (short.frame(), short.finished) == (long.frame(), True)


def test_the_first_event_of_a_stream_is_not_decoded_where_others_were_like_it(monkeypatch: pytest.MonkeyPatch) -> None:
    event = b'data: {"id":"a-1","created":17,"model":"quick","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    AnswerReader("chat_completions", "text/event-stream").feed(event)
    answer = AnswerReader("chat_completions", "text/event-stream")
    monkeypatch.setattr(answer, "_read_event", None)
    answer._take_first(event.replace(b"a-1", b"b-22"))
    assert (answer.token_events, answer.response_id, answer.model) == (1, "b-22", "quick")


def test_every_choice_has_a_shape_of_its_own() -> None:
    template = learn(USUAL.replace(b'"index":0', b'"index":3'), probe, Tried())
    assert isinstance(template, Constant)
    assert template.choice == 3
    answer = AnswerReader("chat_completions", "text/event-stream")
    for index in (b"0", b"3", b"0", b"3"):
        answer.feed(USUAL.replace(b'"index":0', b'"index":' + index))
    assert {template.choice for template in answer._templates} == {0, 3}


@pytest.mark.parametrize("text", [b"", b'a"b', b"a\\", b"a\nb", b"a\x00", b"\xff", b"\\x", b"\\ud800"])
def test_what_is_no_text_is_left_to_the_long_way(text: bytes) -> None:
    template = learn(USUAL, probe, Tried())
    assert template is not None
    facts = AnswerFacts()
    assert template.take(USUAL.replace(b"Hi", text), 0, facts) == -1
    assert facts.token_events == 0


def test_a_shape_with_running_counts() -> None:
    data = USUAL[:-3] + b',"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}}\n\n'
    template = learn(data, probe, Tried())
    assert isinstance(template, Counting)
    facts = AnswerFacts()
    later = data.replace(b":9,", b":19,").replace(b":2}", b":12}")
    assert template.take(later, 0, facts) == len(later)
    assert (facts.completion_tokens, facts.tokens_in_read, facts.token_events) == (12, 12, 1)
    for wrong in (b":02}", b":}", b":-2}", b":2.5}", b":1234567890123456}", b":null}"):
        assert template.take(data.replace(b":2}", wrong), 0, AnswerFacts()) == -1
    assert template.take(data.replace(b'"prompt_tokens":7', b'"prompt_tokens":8'), 0, AnswerFacts()) == -1


@pytest.mark.parametrize(
    "inside",
    [
        '{"delta":{"content":""}}',
        '{"delta":{"role":"assistant","content":""}}',
        '{"delta":{"content":"x"},"finish_reason":"stop"}',
        '{"delta":{"content":"x","reasoning":"y"}}',
        '{"delta":{"content":"x"}},{"index":1,"delta":{"content":"y"}}',
        '{"delta":{"content":["x"]}}',
        '{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"x"}}]}}',
    ],
)
def test_events_that_do_more_than_bring_one_text_teach_nothing(inside: str) -> None:
    assert learn(block(inside), probe, Tried()) is None


def test_a_key_written_twice_does_not_mislead() -> None:
    template = learn(block('{"delta":{"content":"first","content":"last"}}'), probe, Tried())
    assert isinstance(template, Constant)
    assert template.head.endswith(b'"first","content":"')


def test_a_block_with_a_comment_teaches_nothing() -> None:
    assert learn(b": note\n" + USUAL, probe, Tried()) is None


def test_a_byte_order_mark_is_no_part_of_a_shape() -> None:
    assert learn(b"\xef\xbb\xbf" + USUAL, probe, Tried()) is None


def test_a_block_that_began_in_an_earlier_read_teaches_nothing() -> None:
    assert learn(USUAL[3:], probe, Tried()) is None


def test_the_probe_reads_the_long_way() -> None:
    facts = AnswerFacts()
    chat.read_event(b"", USUAL[6:-2], facts)
    assert probe(USUAL).progress() == facts.progress()
    assert probe(USUAL).frame() == facts.frame()


def length_alone(text: bytes) -> int:
    try:
        return len(decode_string(b'"' + text + b'"'))
    except NO_STRING:
        return 0


PIECES = (
    b"a",
    b"",
    b'"',
    b"\\",
    b",",
    b"]",
    b" ",
    b"\\n",
    b"\\u00fc",
    "ü".encode(),
    b"\xff",
    b"\xc3",
    b"\xbc",
    b"\n",
    b'","',
)


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join), max_size=6))
def test_texts_that_are_looked_at_together_come_out_as_each_alone(texts: list[bytes]) -> None:
    assert text_lengths(texts) == [length_alone(text) for text in texts]


def test_texts_that_complete_each_other_are_not_taken_for_texts() -> None:
    assert text_lengths([b"a\\", b',"x']) == [0, 0]
    assert text_lengths([b'a","b', b"c"]) == [0, 1]
    assert text_lengths([b"a\\", b",", b"c\\", b","]) == [0, 1, 0, 1]
