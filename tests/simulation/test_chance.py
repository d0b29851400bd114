"""Chance from a seed."""

from simulation.chance import Chance


def test_the_values_of_a_seed_are_the_same_in_every_release_of_python() -> None:
    chance = Chance(7, "pods")
    assert [chance.whole(1, 6) for _ in range(12)] == [4, 6, 3, 5, 6, 2, 3, 2, 2, 5, 2, 3]
    assert chance.stream("nodes").whole(1, 1000) == 480


def test_a_stream_is_not_shifted_by_another_one() -> None:
    chance = Chance(7, "pods")
    first = chance.stream("nodes").between(0.0, 1.0)
    chance.between(0.0, 1.0)
    assert chance.stream("nodes").between(0.0, 1.0) == first


def test_weights_decide_how_often_an_option_is_taken() -> None:
    chance = Chance(7, "weights")
    taken = [chance.weighted(((9.0, "often"), (1.0, "seldom"), (0.0, "never"))) for _ in range(1000)]
    assert "never" not in taken
    assert 50 < taken.count("seldom") < 150


def test_delays_have_their_mean_and_are_never_negative() -> None:
    chance = Chance(7, "delays")
    delays = [chance.delay(2.0) for _ in range(2000)]
    assert min(delays) >= 0.0
    assert 1.8 < sum(delays) / len(delays) < 2.2
