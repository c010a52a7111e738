"""Rates and budgets, by a clock that the test turns; and in bounded memory."""

from __future__ import annotations

import threading

import pytest

from gradmix.errors import UserError
from gradmix.serve.lane import Lane
from gradmix.serve.limits import Budget, Limits, RateLimit, client_key
from gradmix.serve.refusal import Refusal, one_line


def test_a_client_has_a_burst_and_then_its_rate() -> None:
    now = 0.0
    limit = RateLimit(10.0, lambda: now)
    assert [limit.wait("a") for _ in range(20)] == [0.0] * 20
    assert limit.wait("a") == pytest.approx(0.1)
    assert limit.wait("b") == 0.0  # another client's bucket is its own
    now = 0.1
    assert limit.wait("a") == 0.0
    assert limit.wait("a") > 0
    now = 1000.0
    assert [limit.wait("a") for _ in range(21)][-1] > 0  # silence saves up a burst, not more


def test_no_rate_is_no_limit_and_slow_rates_allow_one() -> None:
    assert all(RateLimit(0.0).wait("a") == 0.0 for _ in range(1000))
    slow = RateLimit(0.1, lambda: 0.0)
    assert slow.wait("a") == 0.0
    assert slow.wait("a") == pytest.approx(10.0)


def test_many_clients_take_bounded_memory() -> None:
    limit = RateLimit(1.0, lambda: 0.0)
    for i in range(20_000):
        limit.wait(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}")
    assert len(limit) == 4096


def test_whose_bucket() -> None:
    assert client_key("10.0.0.1") != client_key("10.0.0.2")
    assert client_key("2001:db8::1") == client_key("2001:db8::ffff:1")
    assert client_key("2001:db8:0:1::1") != client_key("2001:db8::1")
    assert client_key("::ffff:10.0.0.1") == client_key("10.0.0.1")  # where the server listens on ::
    assert client_key("::ffff:10.0.0.1") != client_key("::ffff:10.0.0.2")
    assert client_key("not an address") == "not an address"


def test_a_budget_is_taken_and_given_back() -> None:
    budget = Budget(10)
    budget.take(6)
    with pytest.raises(Refusal) as refused:
        budget.take(5)
    assert (refused.value.status, refused.value.retry_after) == (503, 1)
    budget.take(4)
    budget.give_back(10)
    assert budget.taken == 0
    budget.take(11)  # alone, it would otherwise never be done


def test_limits_must_make_sense() -> None:
    with pytest.raises(UserError, match="images must be at least 1"):
        Limits(images=0)
    with pytest.raises(UserError, match=r"pixels must be at most 89,478,485, .*, not 100,000,000"):
        Limits(pixels=100_000_000)
    with pytest.raises(UserError, match="rate"):
        Limits(rate=-1)
    with pytest.raises(UserError, match="rate"):
        Limits(rate=float("nan"))
    with pytest.raises(Refusal, match="65 images in one request; the limit is 64"):
        Limits().check_count(65)


def test_a_lane_is_bounded_and_finishes_its_work() -> None:
    lane, gate = Lane("test", most_waiting=2), threading.Event()
    first, second = lane.submit(gate.wait), lane.submit(lambda: 2)
    with pytest.raises(Refusal):
        lane.submit(lambda: 3)
    gate.set()
    lane.close()
    assert (first.result(), second.result()) == (True, 2)


def test_texts_of_clients_become_one_line() -> None:
    assert one_line("a\r\nSet-Cookie: b\x00\x1b[2J") == "a Set-Cookie: b [2J"
    assert len(one_line("x" * 10_000)) == 300
