"""The simulated server over real sockets: the bytes clients see, and what happens to the engine behind them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.eventually import soon

from prefillwatch.errors import ConfigError, ListenError
from prefillwatch.lab.simulator import SimServer, SimSettings
from prefillwatch.lab.simulator.requests import CHAT, COMPLETIONS, MESSAGES, RESPONSES

MODEL = "tiny"
SETTINGS = SimSettings(preset="small", served_model_name=MODEL)
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 3, "messages": [{"role": "user", "content": "one two three"}]}
ASK_COMPLETION: dict[str, Any] = {"model": MODEL, "max_tokens": 3, "prompt": "one two three"}
ASK_RESPONSE: dict[str, Any] = {"model": MODEL, "max_output_tokens": 3, "input": "one two three"}
PROMPT_TOKENS = 3 + 7  # the words, and what the chat template adds


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def chunks(self) -> list[bytes]:
        """The HTTP chunks the body came in; the last must be the empty one that ends it."""
        chunks, at = [], 0
        while at < len(self.body):
            start = self.body.index(b"\r\n", at) + 2
            end = start + int(self.body[at:start], 16)
            chunks.append(self.body[start:end])
            at = end + 2
        assert chunks.pop() == b""
        return chunks

    @property
    def events(self) -> list[Any]:
        """The JSON of every event but `[DONE]`."""
        data = [chunk.partition(b"data: ")[2] for chunk in self.chunks]
        return [json.loads(text) for text in data if not text.startswith(b"[DONE]")]


class Client:
    """Raw HTTP/1.1 on one connection per request."""

    def __init__(self, server: SimServer) -> None:
        self.server = server
        self.port = int(server.url.rsplit(":", 1)[1])

    async def send(self, method: str, path: str, body: object = None, *headers: str) -> Reply:
        reader, writer = await self.open(method, path, body, "Connection: close", *headers)
        raw = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, *fields = head.decode().split("\r\n")
        return Reply(int(first.split()[1]), dict(field.split(": ", 1) for field in fields), rest)

    async def open(
        self, method: str, path: str, body: object = None, *headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = [f"{method} {path} HTTP/1.1", "Host: sim", f"Content-Length: {len(payload)}", *headers, "", ""]
        writer.write("\r\n".join(fields).encode() + payload)
        return reader, writer

    async def post(self, path: str, body: object, *headers: str) -> Reply:
        return await self.send("POST", path, body, *headers)

    async def metrics(self) -> dict[str, float]:
        """Samples of `/metrics` by name, with the labels that tell samples of a name apart."""
        page = (await self.send("GET", "/metrics")).body.decode()
        samples = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                own = [value for name, value in sorted(sample.labels.items()) if name not in ("model_name", "engine")]
                samples["/".join([sample.name, *own])] = sample.value
        return samples


def with_server(scenario: Callable[[Client], Awaitable[None]], settings: SimSettings = SETTINGS) -> None:
    async def main() -> None:
        async with SimServer(settings) as server:
            await scenario(Client(server))

    asyncio.run(main())


class TestChat:
    def test_a_stream_is_a_role_then_a_token_per_event_then_done(self) -> None:
        async def scenario(client: Client) -> None:
            reply = await client.post(CHAT, ASK | {"stream": True}, "X-Request-Id: abc")
            assert reply.status == 200
            assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
            role, first, second, third, done = reply.chunks
            created = json.loads(role[6:])["created"]
            stem = (
                f'data: {{"id":"chatcmpl-abc","object":"chat.completion.chunk","created":{created},"model":"tiny",'
                f'"choices":[{{"index":0,"delta":{{'
            )
            assert role.decode() == stem + (
                '"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
                '"prompt_token_ids":null,"prompt_text":null}\n\n'
            )
            words = [json.loads(event[6:])["choices"][0]["delta"]["content"] for event in (first, second, third)]
            for event, word in ((first, words[0]), (second, words[1])):
                assert event.decode() == stem + (
                    f'"content":"{word}"}},"logprobs":null,"finish_reason":null,"token_ids":null}}]}}\n\n'
                )
            assert third.decode() == stem + (
                f'"content":"{words[2]}"}},"logprobs":null,"finish_reason":"length","stop_reason":null,'
                f'"token_ids":null}}],"system_fingerprint":"vllm-0.33.0-sim"}}\n\n'
            )
            assert done == b"data: [DONE]\n\n"
            assert [word.startswith(" ") for word in words] == [False, True, True]

        with_server(scenario)

    def test_usage_comes_last_when_asked_for(self) -> None:
        async def scenario(client: Client) -> None:
            reply = await client.post(CHAT, ASK | {"stream": True, "stream_options": {"include_usage": True}})
            *events, last = reply.events
            assert all("usage" not in event for event in events)
            assert last["choices"] == []
            assert last["usage"] == {
                "prompt_tokens": PROMPT_TOKENS,
                "total_tokens": PROMPT_TOKENS + 3,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 0},
            }

        with_server(scenario)

    def test_continuous_usage_counts_up_from_the_role_on(self) -> None:
        async def scenario(client: Client) -> None:
            options = {"include_usage": True, "continuous_usage_stats": True}
            reply = await client.post(CHAT, ASK | {"stream": True, "stream_options": options})
            assert [event["usage"]["completion_tokens"] for event in reply.events] == [0, 1, 2, 3, 3]
            assert {event["usage"]["prompt_tokens"] for event in reply.events} == {PROMPT_TOKENS}

        with_server(scenario)

    def test_n_answers_come_interleaved_each_with_its_own_role(self) -> None:
        async def scenario(client: Client) -> None:
            reply = await client.post(CHAT, ASK | {"stream": True, "n": 3})
            indexes = [event["choices"][0]["index"] for event in reply.events]
            assert indexes == [0, 0, 1, 1, 2, 2, *(0, 1, 2) * 2]
            roles = [event["choices"][0]["delta"].get("role") for event in reply.events]
            assert roles.count("assistant") == 3

        with_server(scenario)

    def test_without_stream_the_answer_is_one_object(self) -> None:
        async def scenario(client: Client) -> None:
            reply = await client.post(CHAT, ASK | {"n": 2})
            answer = reply.json
            assert answer["object"] == "chat.completion"
            assert [choice["index"] for choice in answer["choices"]] == [0, 1]
            for choice in answer["choices"]:
                assert len(choice["message"]["content"].split()) == 3
                assert choice["finish_reason"] == "length"
            assert answer["usage"]["prompt_tokens"] == PROMPT_TOKENS
            assert answer["usage"]["completion_tokens"] == 6

        with_server(scenario)

    def test_an_answer_without_a_limit_ends_by_itself(self) -> None:
        async def scenario(client: Client) -> None:
            answer = (await client.post(CHAT, {"model": MODEL, "messages": ASK["messages"]})).json
            assert answer["choices"][0]["finish_reason"] == "stop"
            assert 40 <= answer["usage"]["completion_tokens"] <= 400

        with_server(scenario)

    def test_ignore_eos_goes_on_to_the_model_s_limit(self) -> None:
        async def scenario(client: Client) -> None:
            body = {"model": MODEL, "messages": ASK["messages"], "ignore_eos": True}
            answer = (await client.post(CHAT, body)).json
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["usage"]["total_tokens"] == 64

        with_server(scenario, SimSettings(preset="small", served_model_name=MODEL, max_model_len=64))

    def test_a_repeated_prompt_is_cached_but_for_its_last_block(self) -> None:
        async def scenario(client: Client) -> None:
            messages = [{"role": "user", "content": " ".join(f"w{i}" for i in range(100))}]
            first = (await client.post(CHAT, ASK | {"messages": messages})).json["usage"]
            second = (await client.post(CHAT, ASK | {"messages": messages})).json["usage"]
            assert first["prompt_tokens_details"]["cached_tokens"] == 0
            assert second["prompt_tokens_details"]["cached_tokens"] == 96
            assert second["prompt_tokens"] == 107

        with_server(scenario)

    def test_cached_tokens_are_not_told_where_that_is_switched_off(self) -> None:
        async def scenario(client: Client) -> None:
            assert (await client.post(CHAT, ASK)).json["usage"]["prompt_tokens_details"] is None

        with_server(scenario, SimSettings(preset="small", served_model_name=MODEL, enable_prompt_tokens_details=False))


class TestCompletions:
    def test_a_stream_has_no_role_and_carries_text(self) -> None:
        async def scenario(client: Client) -> None:
            options = {"stream": True, "stream_options": {"include_usage": True}}
            first, second, third, usage = (await client.post(COMPLETIONS, ASK_COMPLETION | options)).events
            word = first["choices"][0]["text"]
            assert first == {
                "id": first["id"],
                "object": "text_completion",
                "created": first["created"],
                "model": MODEL,
                "choices": [
                    {
                        "index": 0,
                        "text": word,
                        "logprobs": None,
                        "finish_reason": None,
                        "stop_reason": None,
                        "prompt_token_ids": None,
                        "token_ids": None,
                    }
                ],
            }
            assert list(second["choices"][0]) == list(third["choices"][0]) == list(first["choices"][0])
            assert third["choices"][0]["finish_reason"] == "length"
            assert usage["usage"]["prompt_tokens"] == 3

        with_server(scenario)

    def test_several_prompts_with_several_answers_each(self) -> None:
        async def scenario(client: Client) -> None:
            body = ASK_COMPLETION | {"prompt": ["a b", "c"], "n": 2}
            answer = (await client.post(COMPLETIONS, body)).json
            assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
            assert answer["usage"]["prompt_tokens"] == 3
            assert answer["usage"]["completion_tokens"] == 12

        with_server(scenario)

    @pytest.mark.parametrize(("prompt", "tokens"), [([5, 6, 7], 3), ([[5, 6], [7]], 3), (["a b", "c d"], 4)])
    def test_prompts_may_be_token_ids(self, prompt: object, tokens: int) -> None:
        async def scenario(client: Client) -> None:
            answer = (await client.post(COMPLETIONS, ASK_COMPLETION | {"prompt": prompt})).json
            assert answer["usage"]["prompt_tokens"] == tokens

        with_server(scenario)

    def test_sixteen_tokens_where_no_limit_is_given(self) -> None:
        async def scenario(client: Client) -> None:
            answer = (await client.post(COMPLETIONS, {"model": MODEL, "prompt": "a"})).json
            assert answer["usage"]["completion_tokens"] == 16

        with_server(scenario)


class TestResponses:
    def test_a_stream_numbers_its_named_events_and_repeats_the_text_at_the_end(self) -> None:
        async def scenario(client: Client) -> None:
            reply = await client.post(RESPONSES, ASK_RESPONSE | {"stream": True})
            names = [chunk.split(b"\n", 1)[0].decode() for chunk in reply.chunks]
            delta = "event: response.output_text.delta"
            assert names == [
                "event: response.created",
                "event: response.in_progress",
                "event: response.output_item.added",
                "event: response.content_part.added",
                delta,
                delta,
                delta,
                "event: response.output_text.done",
                "event: response.content_part.done",
                "event: response.output_item.done",
                "event: response.completed",
            ]
            events = reply.events
            assert [event["sequence_number"] for event in events] == list(range(11))
            assert [f"event: {event['type']}" for event in events] == names
            text = "".join(event["delta"] for event in events[4:7])
            final = events[-1]["response"]
            assert final["output"][0]["content"][0]["text"] == text
            assert final["status"] == "incomplete"
            assert final["incomplete_details"] == {"reason": "max_output_tokens"}
            assert (final["usage"]["input_tokens"], final["usage"]["output_tokens"]) == (PROMPT_TOKENS, 3)

        with_server(scenario)

    def test_without_stream_and_with_structured_input(self) -> None:
        async def scenario(client: Client) -> None:
            parts = [{"type": "input_text", "text": "one two"}, {"type": "input_image", "image_url": "data:"}]
            body = ASK_RESPONSE | {"input": [{"role": "user", "content": parts}], "instructions": "be brief"}
            answer = (await client.post(RESPONSES, body)).json
            assert answer["object"] == "response"
            assert answer["usage"]["input_tokens"] == (2 + 4) + (2 + 256 + 4) + 3

        with_server(scenario)


class TestMessages:
    def test_a_stream_wraps_deltas_into_a_content_block(self) -> None:
        async def scenario(client: Client) -> None:
            events = (await client.post(MESSAGES, ASK | {"stream": True})).events
            kinds = [event["type"] for event in events]
            assert kinds == [
                "message_start",
                "content_block_start",
                *["content_block_delta"] * 3,
                "content_block_stop",
                "message_delta",
                "message_stop",
            ]
            assert events[0]["message"]["usage"] == {"input_tokens": PROMPT_TOKENS, "output_tokens": 0}
            assert events[-2]["delta"]["stop_reason"] == "max_tokens"
            assert events[-2]["usage"]["output_tokens"] == 3

        with_server(scenario)

    def test_without_stream(self) -> None:
        async def scenario(client: Client) -> None:
            answer = (await client.post(MESSAGES, ASK | {"system": "be brief"})).json
            assert answer["type"] == "message"
            assert len(answer["content"][0]["text"].split()) == 3
            assert answer["usage"]["input_tokens"] == PROMPT_TOKENS + 2 + 4

        with_server(scenario)


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "body", "status", "param", "message"),
        [
            (CHAT, ASK | {"model": "other"}, 404, "model", "The model `other` does not exist."),
            (CHAT, {"model": MODEL}, 400, "body.messages", "Field required"),
            (CHAT, b"{nonsense", 400, "body.0", "JSON decode error"),
            (CHAT, b'"text"', 400, "body", "valid dictionary"),
            (CHAT, ASK | {"messages": "hello"}, 400, "body.messages", "valid list"),
            (CHAT, ASK | {"max_tokens": 0}, 400, "max_tokens", "max_tokens must be at least 1, got 0."),
            (CHAT, ASK | {"max_tokens": "many"}, 400, "body.max_tokens", "valid integer"),
            (CHAT, ASK | {"n": 0}, 400, None, "n must be at least 1, got 0."),
            (CHAT, ASK | {"n": 5000}, 400, "n", "must be at most 1024"),
            (CHAT, ASK | {"stream_options": {"include_usage": True}}, 400, "stream_options", "`stream=True`"),
            (CHAT, ASK | {"max_tokens": 9000}, 400, "input_tokens", "you requested 9000 output tokens"),
            (COMPLETIONS, ASK_COMPLETION | {"prompt": "a " * 9000}, 400, "input_tokens", "at least 9000 input tokens"),
            (COMPLETIONS, ASK_COMPLETION | {"prompt": ""}, 400, "prompt", "cannot be empty"),
            (COMPLETIONS, ASK_COMPLETION | {"prompt": 5}, 400, "body.prompt", "valid string"),
            (RESPONSES, {"model": MODEL}, 400, "body.input", "Field required"),
        ],
    )
    def test_are_errors_in_vllm_s_form(
        self, path: str, body: object, status: int, param: str | None, message: str
    ) -> None:
        async def scenario(client: Client) -> None:
            reply = await client.post(path, body)
            assert reply.status == status
            error = reply.json["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert (error["code"], error["param"]) == (status, param)
            assert message in error["message"]
            assert client.server.engine.running + client.server.engine.waiting == 0

        with_server(scenario)

    def test_of_messages_have_another_form(self) -> None:
        async def scenario(client: Client) -> None:
            reply = await client.post(MESSAGES, ASK | {"model": "other"})
            assert reply.status == 404
            assert reply.json["type"] == "error"
            assert reply.json["error"]["type"] == "NotFoundError"

        with_server(scenario)

    def test_unknown_paths_and_methods(self) -> None:
        async def scenario(client: Client) -> None:
            assert (await client.send("GET", "/nowhere")).status == 404
            reply = await client.send("GET", CHAT)
            assert (reply.status, reply.headers["allow"]) == (405, "POST")

        with_server(scenario)


class TestOtherEndpoints:
    def test_health_version_and_models(self) -> None:
        async def scenario(client: Client) -> None:
            health = await client.send("GET", "/health")
            assert (health.status, health.body) == (200, b"")
            assert (await client.send("GET", "/version")).json == {"version": "0.33.0"}
            (card,) = (await client.send("GET", "/v1/models")).json["data"]
            assert (card["id"], card["max_model_len"]) == (MODEL, 8192)

        with_server(scenario)

    def test_tokenize_counts_what_generation_will_use(self) -> None:
        async def scenario(client: Client) -> None:
            asked = {"model": MODEL, "messages": ASK["messages"]}
            answer = (await client.post("/tokenize", asked)).json
            assert answer["count"] == len(answer["tokens"]) == PROMPT_TOKENS
            assert (await client.post("/tokenize", {"model": MODEL, "prompt": "a b"})).json["count"] == 2

        with_server(scenario)


class TestMetrics:
    def test_tell_of_a_request_what_vllm_tells(self) -> None:
        async def scenario(client: Client) -> None:
            await client.post(CHAT, ASK | {"n": 2})
            await client.post(CHAT, {"model": MODEL, "messages": ASK["messages"]})
            samples = await client.metrics()
            assert samples["vllm:request_success_total/length"] == 2
            assert samples["vllm:request_success_total/stop"] == 1
            assert samples["vllm:prompt_tokens_total"] == 3 * PROMPT_TOKENS
            assert samples["vllm:time_to_first_token_seconds_count"] == 3
            assert samples["vllm:generation_tokens_total"] == samples["vllm:inter_token_latency_seconds_count"] + 3
            assert samples["vllm:request_params_n_sum"] == 5
            assert samples["vllm:num_requests_running"] == 0
            assert samples["vllm:kv_cache_usage_perc"] == 0
            assert samples["process_start_time_seconds"] > 0

        with_server(scenario)

    def test_have_vllm_s_labels_and_bounds(self) -> None:
        async def scenario(client: Client) -> None:
            page = (await client.send("GET", "/metrics")).body.decode()
            families = {family.name: family for family in text_string_to_metric_families(page)}
            gap = families["vllm:inter_token_latency_seconds"]
            assert all({"model_name", "engine"} <= set(sample.labels) for sample in gap.samples)
            bounds = [sample.labels["le"] for sample in gap.samples if sample.name.endswith("_bucket")]
            assert bounds[:4] == ["0.01", "0.025", "0.05", "0.075"]
            assert bounds[-2:] == ["80.0", "+Inf"]
            (info,) = families["vllm:cache_config_info"].samples
            assert (info.labels["block_size"], info.labels["num_gpu_blocks"]) == ("16", "16384")
            prompt = families["vllm:request_prompt_tokens"]
            bounds = [sample.labels["le"] for sample in prompt.samples if sample.name.endswith("_bucket")]
            assert bounds[-2:] == ["5000.0", "+Inf"]

        with_server(scenario)

    def test_show_preemptions_of_a_cache_that_is_too_small(self) -> None:
        async def scenario(client: Client) -> None:
            body = {"model": MODEL, "prompt": ["a " * 60] * 3, "max_tokens": 60}
            await client.post(COMPLETIONS, body)
            samples = await client.metrics()
            assert samples["vllm:num_preemptions_total"] > 0
            assert samples["vllm:request_num_preemptions_sum"] == samples["vllm:num_preemptions_total"]
            assert samples["vllm:generation_tokens_total"] == 180

        settings = SimSettings(
            preset="small",
            served_model_name=MODEL,
            max_model_len=128,
            num_gpu_blocks_override=14,
            enable_prefix_caching=False,
        )
        with_server(scenario, settings)


class TestClientGone:
    LONG = ASK | {"max_tokens": 8000, "stream": True}

    def test_mid_stream_frees_the_sequence(self) -> None:
        async def scenario(client: Client) -> None:
            reader, writer = await client.open("POST", CHAT, self.LONG)
            await reader.readuntil(b'"content":" ')
            assert client.server.engine.running == 1
            writer.close()
            await soon(lambda: client.server.engine.running + client.server.engine.waiting == 0)
            assert client.server.engine.blocks.usage == 0.0
            samples = await client.metrics()
            assert samples["sim:aborted_requests_total"] == 1
            assert samples["vllm:num_requests_running"] == 0

        with_server(scenario)

    def test_without_stream_and_with_many_answers_frees_them_all(self) -> None:
        async def scenario(client: Client) -> None:
            _, writer = await client.open("POST", CHAT, ASK | {"max_tokens": 8000, "n": 4})
            await soon(lambda: client.server.engine.running == 4)
            writer.close()
            await soon(lambda: client.server.engine.running + client.server.engine.waiting == 0)

        with_server(scenario)

    def test_while_waiting_leaves_the_queue(self) -> None:
        async def scenario(client: Client) -> None:
            _, running = await client.open("POST", CHAT, self.LONG)
            await soon(lambda: client.server.engine.running == 1)
            _, waiting = await client.open("POST", CHAT, self.LONG)
            await soon(lambda: client.server.engine.waiting == 1)
            waiting.close()
            await soon(lambda: client.server.engine.waiting == 0)
            running.close()
            await soon(lambda: client.server.engine.running + client.server.engine.waiting == 0)

        with_server(scenario, SimSettings(preset="small", served_model_name=MODEL, max_num_seqs=1))


class TestConnections:
    def test_are_kept_and_answer_pipelined_requests_in_order(self) -> None:
        async def scenario(client: Client) -> None:
            reader, writer = await client.open("POST", CHAT, ASK)
            writer.write(b"GET /version HTTP/1.1\r\nHost: sim\r\n\r\n")
            chat = await reader.readuntil(b'"metrics":null}')
            version = await reader.readuntil(b'{"version":"0.33.0"}')
            assert chat.startswith(b"HTTP/1.1 200 OK")
            assert version.startswith(b"HTTP/1.1 200 OK")
            writer.close()

        with_server(scenario)

    def test_with_nonsense_on_them_are_refused_and_closed(self) -> None:
        async def scenario(client: Client) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(b"what is this\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 400 ")
            writer.close()

        with_server(scenario)

    def test_expect_100_continue_is_answered(self) -> None:
        async def scenario(client: Client) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            payload = json.dumps(ASK).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nHost: sim\r\nContent-Length: {len(payload)}\r\n"
            writer.write(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(payload)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            writer.close()

        with_server(scenario)

    def test_a_slow_reader_gets_everything_in_fewer_and_fatter_events(self) -> None:
        async def scenario(client: Client) -> None:
            options = {"include_usage": True, "continuous_usage_stats": True}
            body = ASK | {"max_tokens": 300, "n": 64, "stream": True, "stream_options": options}
            reader, writer = await client.open("POST", CHAT, body, "Connection: close")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await soon(lambda: client.server.engine.running == 64)
            await soon(lambda: client.server.engine.running + client.server.engine.waiting == 0)
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            raw = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            events = Reply(200, {}, raw.partition(b"\r\n\r\n")[2]).events
            pieces = [event["choices"][0]["delta"]["content"].split() for event in events if event["choices"]]
            assert sum(map(len, pieces)) == 64 * 300
            assert max(map(len, pieces)) > 1
            assert events[-1]["usage"]["completion_tokens"] == 64 * 300

        with_server(scenario)

    def test_are_cut_when_the_server_stops(self) -> None:
        async def main() -> None:
            async with SimServer(SETTINGS) as server:
                reader, writer = await Client(server).open("POST", CHAT, TestClientGone.LONG)
                await reader.readuntil(b'"content":" ')
            rest = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            assert not rest.endswith(b"0\r\n\r\n")

        asyncio.run(main())


def test_flags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_model_len"):
        SimServer(SimSettings(enable_chunked_prefill=False, max_num_batched_tokens=2048))
    with pytest.raises(ConfigError, match="unknown preset"):
        SimServer(SimSettings(preset="huge"))


def test_a_taken_address_is_refused_by_name() -> None:
    async def main(port: int) -> None:
        async with SimServer(SETTINGS, "127.0.0.1", port):
            pass

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}"):
            asyncio.run(main(port))
