"""Beginnings of prompts, as digests of what each block ends."""

from prefillwatch.analysis.requests.prefix_cache import PrefixMemory


def test_nothing_is_shared_with_nobody() -> None:
    assert PrefixMemory().shared("m", (1, 2, 3)) == 0


def test_the_longest_known_beginning_counts() -> None:
    memory = PrefixMemory()
    memory.remember("m", (1, 2, 3, 4))
    assert memory.shared("m", (1, 2, 3, 4)) == 4
    assert memory.shared("m", (1, 2, 30, 40)) == 2
    assert memory.shared("m", (10, 20, 30)) == 0
    assert memory.shared("m", ()) == 0


def test_models_do_not_share_a_cache() -> None:
    memory = PrefixMemory()
    memory.remember("m", (1, 2))
    assert memory.shared("n", (1, 2)) == 0


def test_usage_that_denies_it_thrice_ends_the_expectation_and_a_hit_restores_it() -> None:
    memory = PrefixMemory()
    memory.remember("m", (1, 2))
    memory.reported("m", 0, 0)  # nothing was expected: that denies nothing
    for _ in range(3):
        assert memory.shared("m", (1, 2)) == 2
        memory.reported("m", 100, 0)
    assert memory.shared("m", (1, 2)) == 0
    memory.reported("m", 0, 64)
    assert memory.shared("m", (1, 2)) == 2


def test_memory_is_bounded_and_keeps_what_is_used() -> None:
    memory = PrefixMemory(kept=4)
    memory.remember("m", (1, 2))
    for digest in range(10, 20):
        memory.remember("m", (digest,))
        memory.remember("m", (1, 2))
    assert memory.shared("m", (1, 2)) == 2
    assert memory.shared("m", (10,)) == 0


def test_a_forgotten_model_leaves_nothing_behind() -> None:
    memory = PrefixMemory()
    memory.remember(3, (1, 2))
    memory.forget(3)
    assert memory.shared(3, (1, 2)) == 0
