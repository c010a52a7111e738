"""Rates and budgets, by a clock that the test sets; and in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future

import numpy as np
import pytest

from gradmix.errors import UserError
from gradmix.serve.http import HTTPError
from gradmix.serve.limits import SMALL_REQUEST as SMALL
from gradmix.serve.limits import Budget, Deadline, Limits, PixelBudget, RateLimit, client_key


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
    assert limit.wait("10.0.0.0") == 0.0  # the longest silent one was forgotten, with what it had used
    limit.wait("last")
    limit.wait("last")
    limit.wait("another")
    assert limit.wait("last") > 0  # the last one was not


def test_addresses_of_one_network_share_their_rate() -> None:
    limit = RateLimit(0.5, lambda: 0.0)
    assert limit.wait("2001:db8::1") == 0.0
    assert limit.wait("2001:db8::2") > 0


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
    with pytest.raises(HTTPError) as refused:
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
    with pytest.raises(HTTPError, match="65 images in one request; the limit is 64"):
        Limits().check_count(65)


# Pixels


def check_refused(status: int, take: Callable[[], object]) -> HTTPError:
    with pytest.raises(HTTPError) as found:
        take()
    assert found.value.status == status
    return found.value


def test_pixels_of_a_request_a_client_and_all() -> None:
    budget = PixelBudget(Limits(request_pixels=50 * SMALL, client_pixels=60 * SMALL, total_pixels=80 * SMALL))
    told = check_refused(413, lambda: budget.take("a", 51 * SMALL))
    assert told.reason == (
        "the images come to 51,000,000 pixels; the limit of a request is 50,000,000 "
        "(--max-request-pixels): send fewer or smaller images"
    )
    budget.take("a", 40 * SMALL)
    told = check_refused(429, lambda: budget.take("a", 30 * SMALL))
    assert "--max-client-pixels" in told.reason
    assert told.retry_after == 2
    told = check_refused(503, lambda: budget.take("b", 50 * SMALL))
    assert "--max-total-pixels" in told.reason
    assert told.retry_after == 2
    budget.take("b", 40 * SMALL)
    budget.take("c", SMALL)  # all is taken, but small requests have a reserve
    budget.give_back("a", 40 * SMALL)
    budget.take("a", 30 * SMALL)
    for client, pixels in (("a", 30), ("b", 40), ("c", 1)):
        budget.give_back(client, pixels * SMALL)
    assert (budget.taken, len(budget)) == (0, 0)


def test_a_share_smaller_than_a_request_lets_it_pass_alone() -> None:
    budget = PixelBudget(Limits(request_pixels=5 * SMALL, client_pixels=SMALL, total_pixels=SMALL))
    budget.take("a", 5 * SMALL)
    check_refused(429, lambda: budget.take("a", 5 * SMALL))


def test_a_request_without_pixels_leaves_no_client_behind() -> None:
    budget = PixelBudget(Limits())
    budget.take("a", 0)
    assert (budget.taken, len(budget)) == (0, 0)


def test_addresses_of_one_network_are_one_client() -> None:
    budget = PixelBudget(Limits())
    budget.take("2001:db8::1", 150 * SMALL)
    check_refused(429, lambda: budget.take("2001:db8::2", 150 * SMALL))


def test_any_order_of_taking_and_giving_stays_within_the_limits() -> None:
    random = np.random.default_rng(0)
    limits = Limits(request_pixels=20 * SMALL, client_pixels=30 * SMALL, total_pixels=60 * SMALL)
    budget, held = PixelBudget(limits), list[tuple[str, int]]()
    statuses = set()
    for _ in range(5000):
        if held and random.random() < 0.4:
            budget.give_back(*held.pop(int(random.integers(len(held)))))
        client, pixels = str(random.integers(5)), int(random.integers(1, 25 * SMALL))
        pixels = pixels if random.random() < 0.5 else pixels // 100
        try:
            budget.take(client, pixels)
        except HTTPError as error:
            statuses.add(error.status)
        else:
            held.append((client, pixels))
        assert budget.taken == sum(size for _, size in held) <= 1.25 * limits.total_pixels
        assert all(
            sum(size for who, size in held if who == one) <= 1.25 * limits.client_pixels for one in "01234"
        )
    assert statuses == {413, 429, 503}
    for one in held:
        budget.give_back(*one)
    assert (budget.taken, len(budget)) == (0, 0)


@pytest.mark.parametrize("name", ["request_pixels", "client_pixels", "total_pixels"])
def test_limits_of_pixels_and_time_must_make_sense(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} must be at least 1"):
        Limits(**{name: 0})
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="deadline"):
            Limits(answer_seconds=seconds)


def test_work_that_has_not_begun_is_cancelled_at_the_deadline() -> None:
    for in_thread in (True, False):
        work: Future[int] = Future()
        passed = Deadline(0.0, lambda: 0.0)
        with pytest.raises(HTTPError, match="no answer within 0 s"):
            passed.wait_in_thread(work) if in_thread else asyncio.run(passed.wait(work))
        assert work.cancelled()


def test_work_that_has_begun_is_waited_for_if_it_must_be_finished() -> None:
    async def wait(begun: bool, finish: bool) -> int:
        work: Future[int] = Future()
        if begun:
            work.set_running_or_notify_cancel()
            asyncio.get_running_loop().call_soon(
                lambda: asyncio.get_running_loop().call_soon(finish_it, work)
            )
        return await Deadline(0.0, lambda: 0.0).wait(work, finish)

    def finish_it(work: Future[int]) -> None:
        work.set_result(3)

    assert asyncio.run(wait(begun=True, finish=True)) == 3
    for begun, finish in ((True, False), (False, True)):
        with pytest.raises(HTTPError, match="no answer"):
            asyncio.run(within_turns(wait(begun, finish)))


async def within_turns(work: Coroutine[None, None, int], turns: int = 10_000) -> int:
    """The result of ``work``, which must not wait for anything outside."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    task.cancel()
    return await task
