"""Ranks that torchrun starts again rendezvous under a new name, whatever the ranks before them left in the store."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from lit_gans.strategies.processes import rendezvous


def attempt(store, ranks, order):
    with ThreadPoolExecutor(ranks) as threads:
        names = [threads.submit(rendezvous, store, rank, ranks, timedelta(minutes=5)) for rank in order]
        return {name.result() for name in names}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_each_attempt_has_one_name_of_its_own(order):
    store = HashStore()
    found = [attempt(store, 3, order) for _ in range(3)]
    assert all(len(names) == 1 for names in found)
    assert len(set.union(*found)) == 3


def test_a_rank_that_is_first_waits_for_the_others_though_it_sees_those_before():
    store = HashStore()
    attempt(store, 2, (0, 1))
    with pytest.raises(TimeoutError, match=r"ranks \[1\] have not started within 0 s of rank 0"):
        rendezvous(store, 0, 2, timeout=timedelta(seconds=0.3))
    attempt(store, 2, (0, 1))
    with pytest.raises(TimeoutError, match="rank 0 has not started within 0 s of rank 1"):
        rendezvous(store, 1, 2, timeout=timedelta(seconds=0.3))


def test_one_rank_is_alone():
    assert rendezvous(HashStore(), 0, 1)
