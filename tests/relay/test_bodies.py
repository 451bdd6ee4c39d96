"""Who may hold how many bytes of requests, told as timelines with a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.relay.bodies import SMALL_BODY, Bodies, BodyShares, Claim, Loss, State

MIB = 2**20
LIMIT_S = 60.0


class Client:
    """Somebody who sends a body."""

    def __init__(self, stage: Stage, whole: int) -> None:
        self._stage = stage
        self.whole = whole
        self.found = 0
        self.lost: Loss | None = None
        self.claim: Claim = stage.bodies.claim(self)

    def sends(self, size: int) -> Client:
        self._stage.bodies.grow(self.claim, size, self.whole)
        return self

    def is_done(self) -> Client:
        self._stage.bodies.complete(self.claim)
        return self

    def leaves(self) -> None:
        self._stage.bodies.release(self.claim)

    @property
    def state(self) -> State:
        return self.claim.state

    def room_found(self) -> None:
        self.found += 1

    def room_lost(self, loss: Loss) -> None:
        assert self.claim.state is State.GONE
        self.lost = loss


class Copy:
    """Something kept in case it is needed again."""

    forgotten = False

    def drop(self) -> None:
        self.forgotten = True


class Stage:
    """Shares of 4 MiB for small bodies and 192 MiB for large ones."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.bodies = Bodies(BodyShares(4 * MIB, 192 * MIB), LIMIT_S, lambda: int(self.now_s * 1e9))

    def client(self, whole: int = 64 * MIB) -> Client:
        return Client(self, whole)

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.bodies.tick()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_held_is_counted_and_let_go(stage: Stage) -> None:
    client = stage.client(100_000).sends(60_000).sends(40_000)
    assert (stage.bodies.held, stage.bodies.small) == (100_000, 100_000)
    client.is_done()
    assert stage.bodies.held == 100_000
    client.leaves()
    client.leaves()
    assert stage.bodies.held == 0


def test_a_large_body_takes_room_for_all_of_it_and_gives_back_what_it_did_not_need(stage: Stage) -> None:
    client = stage.client(64 * MIB).sends(MIB)
    assert (stage.bodies.small, stage.bodies.large) == (MIB, 0)
    client.sends(1)
    assert (stage.bodies.small, stage.bodies.large) == (0, 64 * MIB)
    client.sends(4 * MIB).is_done()
    assert stage.bodies.large == 5 * MIB + 1
    client.leaves()
    assert stage.bodies.large == 0


def test_large_ones_wait_in_order_of_arrival_and_are_all_served(stage: Stage) -> None:
    first = [stage.client().sends(2 * MIB) for _ in range(3)]
    waiting = [stage.client().sends(MIB + 1), stage.client(2 * MIB).sends(MIB + 1)]
    assert [client.state for client in waiting] == [State.WAITING, State.WAITING]  # the shorter one is not preferred
    first[0].sends(62 * MIB).is_done()
    assert [client.found for client in waiting] == [0, 0]  # upstream has not taken it yet
    first[0].leaves()
    assert [client.found for client in waiting] == [1, 0]
    first[1].leaves()
    assert [client.found for client in waiting] == [1, 1]
    assert all(client.lost is None for client in [*first, *waiting])


def test_prompts_pass_while_large_ones_wait(stage: Stage) -> None:
    for _ in range(6):
        stage.client().sends(MIB + 1)
    assert stage.bodies.waiting == 3
    for _ in range(100):
        prompt = stage.client(100_000).sends(100_000).is_done()
        assert prompt.state is State.COMPLETE
        prompt.leaves()


def test_who_stands_still_loses_its_room_to_who_waits(stage: Stage) -> None:
    still = [stage.client().sends(MIB + 1) for _ in range(3)]
    stage.later(30.0)
    assert [client.lost for client in still] == [None] * 3  # nobody needs the room
    honest = stage.client().sends(MIB + 1)
    stage.later(1.0)
    assert [client.lost for client in still] == [Loss.SLOW] * 3
    assert (honest.found, honest.state) == (1, State.LARGE)


def test_who_sends_fast_enough_to_be_done_in_time_keeps_its_room(stage: Stage) -> None:
    steady = [stage.client(60 * MIB).sends(MIB + 1) for _ in range(3)]
    waits = stage.client().sends(MIB + 1)
    for _ in range(14):
        for client in steady:
            client.sends(MIB)  # of 60, in 60 s
        stage.later(1.0)
    assert [client.lost for client in [*steady, waits]] == [None] * 4


def test_nobody_is_called_slow_at_once(stage: Stage) -> None:
    holders = [stage.client().sends(MIB + 1) for _ in range(3)]
    stage.client().sends(MIB + 1)
    stage.later(2.0)
    assert [client.lost for client in holders] == [None] * 3
    stage.later(0.1)
    assert [client.lost for client in holders] == [Loss.SLOW] * 3


def test_nobody_waits_for_ever(stage: Stage) -> None:
    for _ in range(3):
        stage.client().sends(64 * MIB).is_done()  # and upstream does not take them
    waits = stage.client().sends(MIB + 1)
    stage.later(15.0)
    assert waits.lost is None
    stage.later(0.1)
    assert waits.lost is Loss.FULL
    assert stage.bodies.waiting == 0


def test_a_full_share_of_small_ones_ends_whoever_has_been_sending_for_longest(stage: Stage) -> None:
    stale = [stage.client().sends(MIB) for _ in range(4)]
    prompt = stage.client(100_000).sends(100_000).is_done()
    assert [client.lost for client in stale] == [Loss.FULL, None, None, None]
    assert prompt.state is State.COMPLETE
    assert stage.bodies.small <= 4 * MIB


def test_those_who_wait_for_room_are_in_it_too(stage: Stage) -> None:
    clients = [stage.client().sends(MIB + 1) for _ in range(8)]
    assert [client.lost for client in clients] == [None] * 3 + [Loss.FULL] * 2 + [None] * 3
    assert stage.bodies.small <= 4 * MIB


def test_copies_kept_for_a_repetition_go_first(stage: Stage) -> None:
    sent = [stage.client(MIB).sends(MIB).is_done() for _ in range(3)]
    copies = [Copy() for _ in sent]
    for client, copy in zip(sent, copies, strict=True):
        stage.bodies.keep_as_spare(client.claim, copy)
    stage.bodies.need_again(sent[0].claim)  # its connection was dead
    receiving = stage.client(MIB).sends(MIB - 5)
    assert not any(copy.forgotten for copy in copies)
    stage.client(9).sends(9)
    assert [copy.forgotten for copy in copies] == [False, True, False]
    assert receiving.lost is None


def test_copies_of_large_bodies_do_not_keep_others_waiting(stage: Stage) -> None:
    sent = [stage.client().sends(64 * MIB).is_done() for _ in range(3)]
    copy = Copy()
    stage.bodies.keep_as_spare(sent[1].claim, copy)
    assert not copy.forgotten
    large = stage.client().sends(MIB + 1)
    assert (copy.forgotten, large.state) == (True, State.LARGE)
    waits = stage.client().sends(MIB + 1)
    assert waits.state is State.WAITING
    stage.bodies.keep_as_spare(sent[2].claim, Copy())
    assert (waits.state, waits.found) == (State.LARGE, 1)


def test_where_all_is_on_its_way_upstream_the_newest_is_refused(stage: Stage) -> None:
    sent = [stage.client(MIB).sends(MIB).is_done() for _ in range(4)]
    refused = stage.client(9).sends(9)
    assert refused.lost is Loss.FULL
    sent[0].leaves()
    assert stage.client(9).sends(9).lost is None


def test_a_client_that_leaves_while_it_waits_is_forgotten(stage: Stage) -> None:
    holders = [stage.client().sends(MIB + 1) for _ in range(3)]
    gone, waits = stage.client().sends(MIB + 1), stage.client().sends(MIB + 1)
    gone.leaves()
    holders[0].leaves()
    assert (gone.found, waits.found) == (0, 1)


@pytest.mark.parametrize(
    ("budget", "relays", "largest", "small", "large"),
    [
        (256 * MIB, 1, 64 * MIB, 64 * MIB, 192 * MIB),
        (256 * MIB, 4, 64 * MIB, 16 * MIB, 64 * MIB),
        (MIB, 1, 64 * MIB, 4 * MIB, 64 * MIB),  # one of the largest always fits
        (256 * MIB, 1, 1024 * MIB, 64 * MIB, 1024 * MIB),
    ],
)
def test_the_budget_is_shared_by_all_relays(budget: int, relays: int, largest: int, small: int, large: int) -> None:
    assert BodyShares.of(budget, relays, largest) == BodyShares(small, large)


STEPS = st.lists(st.tuples(st.sampled_from("snldt"), st.integers(0, 7), st.integers(1, 3 * SMALL_BODY)), max_size=80)


@given(STEPS)
def test_whatever_happens_the_sums_are_right_and_within_bounds(steps: list[tuple[str, int, int]]) -> None:
    stage = Stage()
    clients: list[Client] = []
    for act, which, size in steps:
        if act == "n" or not clients:
            clients.append(stage.client(size))
            continue
        client = clients[which % len(clients)]
        left = client.whole - client.claim.size
        if act == "s" and client.state in (State.SMALL, State.LARGE) and left:
            client.sends(min(size, left))
        elif act == "d" and client.state in (State.SMALL, State.LARGE):
            client.is_done()
        elif act == "l":
            client.leaves()
        elif act == "t":
            stage.later(size / SMALL_BODY * 10)
        bodies = stage.bodies
        counted = [client.claim for client in clients if client.state is not State.GONE]
        assert bodies.small == sum(claim.counted for claim in counted if not claim.in_large) <= bodies.shares.small
        assert bodies.large == sum(claim.counted for claim in counted if claim.in_large) <= bodies.shares.large
        assert all(claim.size <= claim.counted for claim in counted)
        waiting = [claim for claim in counted if claim.state is State.WAITING]
        assert len(waiting) == bodies.waiting
        assert not waiting or bodies.large + waiting[0].want > bodies.shares.large or len(waiting) > 1
    for client in clients:
        client.leaves()
    assert stage.bodies.held == 0
