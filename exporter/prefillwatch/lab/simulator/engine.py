"""A model of vLLM's V1 engine that steps in virtual time: no clock, no socket, no randomness.

Every step serves the running requests first, in order of admission: a decoding one by a token, an unfinished prompt
by its next chunk. What is left of the token budget goes to waiting requests, first come, first served. A sequence that
finds no KV block makes the youngest one start over (preemption by recompute). `step` says what rode in the step and how
long it took.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefillwatch.lab.simulator.kv import BlockPool

if TYPE_CHECKING:
    from prefillwatch.lab.simulator.cost import CostModel


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """vLLM's own names. With chunked prefill off, a prompt waits for a step that has room for all of it."""

    cost: CostModel
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    long_prefill_token_threshold: int = 0
    max_model_len: int = 8192
    block_size: int = 16
    num_gpu_blocks: int = 8192

    def __post_init__(self) -> None:
        capacity = (self.num_gpu_blocks - 1) * self.block_size
        if self.max_model_len > capacity:
            raise ValueError(
                f"max_model_len ({self.max_model_len}) exceeds the KV cache of {capacity} tokens "
                f"({self.num_gpu_blocks} blocks of {self.block_size}): "
                "raise num_gpu_blocks_override or lower max_model_len"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is smaller than max_model_len "
                f"({self.max_model_len}): without chunked prefill a prompt must fit into one step; raise "
                "max_num_batched_tokens or enable chunked prefill"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is smaller than max_num_seqs "
                f"({self.max_num_seqs}): every sequence needs a token per step"
            )


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One sequence. `block_hashes` (see `hash_blocks`) makes its prompt known to the prefix cache; else it is unique.

    It ends after `max_tokens` with reason "length", or after `eos_after` tokens with reason "stop".
    """

    id: str
    prompt_tokens: int
    max_tokens: int
    eos_after: int | None = None
    block_hashes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The truth about one engine step. Tokens of a step exist at `end_ns`."""

    index: int
    start_ns: int
    end_ns: int
    #: Prompt tokens computed, by request; tokens recomputed after a preemption too.
    prefill: dict[str, int]
    #: Requests that moved by one token.
    decode: tuple[str, ...]
    #: Tokens produced: those of `decode` and of prompts that became complete.
    produced: dict[str, int]
    #: Requests that ended with this step, and why: "stop" or "length".
    finished: dict[str, str]
    #: Requests that left the waiting queue in this step, and how many of their tokens the prefix cache held.
    admitted: dict[str, int]
    preempted: tuple[str, ...]
    running: int
    waiting: int
    kv_usage: float
    #: Part of the step that was an injected pause, not work.
    paused_ns: int = 0

    @property
    def prefill_tokens(self) -> int:
        return sum(self.prefill.values())


@dataclass(slots=True, eq=False)
class _Sequence:
    request: SimRequest
    computed: int = 0
    output: int = 0
    hashed: int = 0
    blocks: list[int] = field(default_factory=list)

    @property
    def pending(self) -> int:
        return self.request.prompt_tokens + self.output - self.computed

    @property
    def is_decoding(self) -> bool:
        return self.output > 0 and self.pending == 1

    def finish_reason(self, max_model_len: int) -> str | None:
        request = self.request
        if request.eos_after is not None and self.output >= request.eos_after:
            return "stop"
        if self.output >= request.max_tokens or request.prompt_tokens + self.output >= max_model_len:
            return "length"
        return None


@dataclass(slots=True)
class _Plan:
    budget: int
    scheduled: list[tuple[_Sequence, int]] = field(default_factory=list)
    admitted: dict[str, int] = field(default_factory=dict)
    preempted: list[str] = field(default_factory=list)

    def add(self, sequence: _Sequence, tokens: int) -> None:
        self.scheduled.append((sequence, tokens))
        self.budget -= tokens


class Engine:
    """`submit`, `abort`, `step`; the caller brings the time. A request submitted during a step rides in a later one."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.blocks = BlockPool(config.num_gpu_blocks)
        self._sequences: dict[str, _Sequence] = {}
        self._running: list[_Sequence] = []
        self._waiting: deque[_Sequence] = deque()
        self._steps = 0
        self._busy_until_ns = 0
        self._pause_ns = 0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, request: SimRequest) -> None:
        """Queues a request. Raises ValueError for an id in use and for a prompt that leaves no room for a token."""
        if request.id in self._sequences:
            raise ValueError(f"request id {request.id!r} is in use")
        if not 0 < request.prompt_tokens < self.config.max_model_len:
            raise ValueError(
                f"prompt_tokens must be 1 to {self.config.max_model_len - 1} (max_model_len - 1), "
                f"not {request.prompt_tokens}"
            )
        sequence = _Sequence(request)
        self._sequences[request.id] = sequence
        self._waiting.append(sequence)

    def abort(self, request_id: str) -> bool:
        """Forgets a request and frees its blocks. False where it is unknown or has ended."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return False
        (self._running if sequence in self._running else self._waiting).remove(sequence)
        self.blocks.release(sequence.blocks)
        return True

    def pause(self, duration_ns: int) -> None:
        """Makes the next step longer by a standstill that no work explains, like a stopped process."""
        self._pause_ns += duration_ns

    def step(self, now_ns: int) -> StepRecord | None:
        """Runs one step that starts now, or when the step before it ends. None where nothing can be scheduled."""
        plan = _Plan(self.config.max_num_batched_tokens)
        self._schedule_running(plan)
        if not plan.preempted:
            self._schedule_waiting(plan)
        if not plan.scheduled:
            return None
        start_ns = max(now_ns, self._busy_until_ns)
        return self._execute(plan, start_ns)

    def _schedule_running(self, plan: _Plan) -> None:
        index = 0
        while index < len(self._running) and plan.budget > 0:
            sequence = self._running[index]
            tokens = min(self._capped(sequence.pending), plan.budget)
            if not self._make_room(sequence, tokens, plan):
                break
            plan.add(sequence, tokens)
            index += 1

    def _schedule_waiting(self, plan: _Plan) -> None:
        while self._waiting and plan.budget > 0 and len(self._running) < self.config.max_num_seqs:
            sequence = self._waiting[0]
            cached = self._cached_blocks(sequence)
            pending = sequence.pending - len(cached) * self.config.block_size
            if not self._fits(sequence, cached):
                break
            tokens = self._capped(pending)
            if tokens > plan.budget and not self.config.enable_chunked_prefill:
                break
            self._waiting.popleft()
            self._admit(sequence, cached, min(tokens, plan.budget), plan)

    def _capped(self, tokens: int) -> int:
        """The cap per prompt and step holds only while another request needs protection from it."""
        cap = self.config.long_prefill_token_threshold
        return min(tokens, cap) if cap and len(self._sequences) > 1 else tokens

    def _cached_blocks(self, sequence: _Sequence) -> list[int]:
        """At least one token is always computed, else there would be nothing to sample from."""
        if not self.config.enable_prefix_caching:
            return []
        return self.blocks.match(sequence.request.block_hashes, (sequence.pending - 1) // self.config.block_size)

    def _fits(self, sequence: _Sequence, cached: list[int]) -> bool:
        """A prompt is admitted only when all of it fits: half a prompt would keep others out for nothing."""
        new = self._blocks_for(sequence.pending) - len(cached)
        return new <= self.blocks.free - self.blocks.idle(cached)

    def _admit(self, sequence: _Sequence, cached: list[int], tokens: int, plan: _Plan) -> None:
        self.blocks.share(cached)
        sequence.blocks = cached
        sequence.hashed = len(cached)
        sequence.computed = len(cached) * self.config.block_size
        self._running.append(sequence)
        self._grow(sequence, tokens)
        plan.admitted[sequence.request.id] = sequence.computed
        plan.add(sequence, tokens)

    def _make_room(self, sequence: _Sequence, tokens: int, plan: _Plan) -> bool:
        """Preempts from the youngest on until `tokens` more fit. False where the sequence itself had to go."""
        needed = self._blocks_for(sequence.computed + tokens) - len(sequence.blocks)
        while needed > self.blocks.free:
            victim = self._running.pop()
            self._preempt(victim, plan)
            if victim is sequence:
                return False
        if needed > 0:
            self._grow(sequence, tokens)
        return True

    def _preempt(self, victim: _Sequence, plan: _Plan) -> None:
        self.blocks.release(victim.blocks)
        victim.blocks = []
        victim.computed = victim.hashed = 0
        self._waiting.appendleft(victim)
        plan.preempted.append(victim.request.id)

    def _grow(self, sequence: _Sequence, tokens: int) -> None:
        needed = self._blocks_for(sequence.computed + tokens) - len(sequence.blocks)
        sequence.blocks += self.blocks.take(needed)
        hashes = sequence.request.block_hashes
        full = min(len(hashes), (sequence.computed + tokens) // self.config.block_size)
        for index in range(sequence.hashed, full):
            self.blocks.remember(sequence.blocks[index], hashes[index])
        sequence.hashed = max(sequence.hashed, full)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def _execute(self, plan: _Plan, start_ns: int) -> StepRecord:
        cost = self.config.cost
        prefill: dict[str, int] = {}
        decode: list[str] = []
        work = cost.base
        for sequence, tokens in plan.scheduled:
            if sequence.is_decoding:
                decode.append(sequence.request.id)
                work += cost.per_sequence + cost.per_decode_token_context * sequence.computed
            else:
                prefill[sequence.request.id] = tokens
                work += cost.prefill(sequence.computed, tokens)
        if prefill:
            work += cost.mixed_step
        paused_ns, self._pause_ns = self._pause_ns, 0
        self._busy_until_ns = end_ns = start_ns + round(work) + paused_ns
        finished: dict[str, str] = {}
        produced = self._advance(plan, finished)
        self._steps += 1
        return StepRecord(
            index=self._steps - 1,
            start_ns=start_ns,
            end_ns=end_ns,
            prefill=prefill,
            decode=tuple(decode),
            produced=produced,
            finished=finished,
            admitted=plan.admitted,
            preempted=tuple(plan.preempted),
            running=len(self._running),
            waiting=len(self._waiting),
            kv_usage=self.blocks.usage,
            paused_ns=paused_ns,
        )

    def _advance(self, plan: _Plan, finished: dict[str, str]) -> dict[str, int]:
        produced: dict[str, int] = {}
        for sequence, tokens in plan.scheduled:
            sequence.computed += tokens
            if sequence.pending:
                continue
            sequence.output += 1
            produced[sequence.request.id] = 1
            reason = sequence.finish_reason(self.config.max_model_len)
            if reason:
                finished[sequence.request.id] = reason
                del self._sequences[sequence.request.id]
                self._running.remove(sequence)
                self.blocks.release(sequence.blocks)
        return produced
