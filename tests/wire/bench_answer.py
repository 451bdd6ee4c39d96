"""Microseconds per event of the answer reader, for the usual shapes of a stream. Run it by hand; nothing is asserted.

python tests/wire/bench_answer.py [EVENTS]
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator

from prefillwatch.wire.answer import AnswerReader

WORDS = (" the", " of", "\\n", " prefill", " stalls", ' \\"quoted\\"', " decode", " für", " 好", ".")
HEAD = (
    'data: {"id":"chatcmpl-9f8e7d6c5b4a39281706f5e4d3c2b1a0","object":"chat.completion.chunk","created":1755000000,'
    '"model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":%d,"delta":{"content":"'
)
TAIL = '"},"logprobs":null,"finish_reason":null,"token_ids":null}]'


def plain(index: int, choice: int = 0) -> bytes:
    return f"{HEAD % choice}{WORDS[index % len(WORDS)]}{TAIL}}}\n\n".encode()


def with_usage(index: int) -> bytes:
    usage = f'"usage":{{"prompt_tokens":812,"total_tokens":{813 + index},"completion_tokens":{index + 1}}}'
    return f"{HEAD % 0}{WORDS[index % len(WORDS)]}{TAIL},{usage}}}\n\n".encode()


def with_logprobs(index: int) -> bytes:
    word = WORDS[index % len(WORDS)]
    entry = f'{{"token":"{word}","logprob":-{index / 977:.6f},"bytes":null,"top_logprobs":[]}}'
    rest = f'"logprobs":{{"content":[{entry}]}},"finish_reason":null,"token_ids":null}}]}}'
    return f'{HEAD % 0}{word}"}},{rest}\n\n'.encode()


def response_delta(index: int) -> bytes:
    return (
        "event: response.output_text.delta\n"
        f'data: {{"content_index":0,"delta":"{WORDS[index % len(WORDS)]}","item_id":"msg_9f8e7d6c5b4a","logprobs":[],'
        f'"output_index":0,"sequence_number":{index + 4},"type":"response.output_text.delta"}}\n\n'
    ).encode()


def message_delta(index: int) -> bytes:
    return (
        "event: content_block_delta\n"
        'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
        f'"text":"{WORDS[index % len(WORDS)]}"}}}}\n\n'
    ).encode()


def together(make: Callable[[int], bytes], size: int) -> Callable[[int], bytes]:
    return lambda index: b"".join(make(index * size + offset) for offset in range(size))


def two_choices(index: int) -> bytes:
    return plain(index // 2, index % 2)


SHAPES: dict[str, tuple[str, int, Callable[[int], bytes], bool]] = {
    "chat, one event per read": ("chat_completions", 1, plain, True),
    "chat, one event per read, no template": ("chat_completions", 1, plain, False),
    "chat, three events per read": ("chat_completions", 3, together(plain, 3), True),
    "chat, n=2": ("chat_completions", 1, two_choices, True),
    "chat, continuous usage": ("chat_completions", 1, with_usage, True),
    "chat, log probabilities": ("chat_completions", 1, with_logprobs, True),
    "responses": ("responses", 1, response_delta, True),
    "messages": ("messages", 1, message_delta, True),
}


def reads(make: Callable[[int], bytes], count: int) -> Iterator[bytes]:
    return itertools.islice(map(make, itertools.count()), count)


def measure(name: str, events: int) -> str:
    endpoint, per_read, make, templates = SHAPES[name]
    data = list(reads(make, events // per_read))
    best = float("inf")
    for _ in range(15):
        reader = AnswerReader(endpoint, "text/event-stream", templates=templates)
        feed = reader.feed
        start = time.perf_counter()
        for read in data:
            feed(read)
        best = min(best, time.perf_counter() - start)
        assert reader.token_events == len(data) * per_read, reader.token_events
    return f"{best / len(data) / per_read * 1e6:6.2f} µs per event   {name}"


def first_token_cost(rounds: int = 2000) -> str:
    data = plain(0)
    start = time.perf_counter()
    for _ in range(rounds):
        AnswerReader("chat_completions", "text/event-stream").feed(data)
    return f"{(time.perf_counter() - start) / rounds * 1e6:6.2f} µs            new stream and its first token"


if __name__ == "__main__":
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 12_000
    for shape in SHAPES:
        print(measure(shape, events))
    print(first_token_cost())
