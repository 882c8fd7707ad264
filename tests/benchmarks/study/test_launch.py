"""The processes that torchrun or SLURM started measure cells together; here they are threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from lightning.fabric.plugins.environments import SLURMEnvironment

from benchmarks.study.contract import Cell
from benchmarks.study.launch import OutsideLauncher, free_port, launcher

RANKS, NODES = 4, 2


class Place(SLURMEnvironment):
    """SLURM's environment of one rank, without its variables."""

    def __init__(self, rank, port):
        self.rank, self.port = rank, port

    def global_rank(self):
        return self.rank

    def world_size(self):
        return RANKS

    @property
    def main_address(self):
        return "127.0.0.1"

    @property
    def main_port(self):
        return self.port


class Noted(OutsideLauncher):
    """Notes the ranks of each cell instead of starting their processes."""

    def _run(self, cell, ranks, per_node, common):
        self.ran.append((cell.name, *ranks, per_node, common["MASTER_PORT"]))
        return "result", {"rank": self.rank}


def study_of(rank, port, cells):
    place = Noted(2, Place(rank, port))
    place.ran = []
    if rank:
        return place, place.follow()
    found = [place.measure(cell) for cell in cells]
    place.close()
    return place, found


def test_slurm_s_ranks_measure_the_cells_that_need_them(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", str(RANKS))
    monkeypatch.setenv("SLURM_NNODES", str(NODES))
    cells, port = (
        [Cell("scaling", "all", ranks=4), Cell("scaling", "one"), Cell("scaling", "two", ranks=2)],
        free_port(),
    )
    with ThreadPoolExecutor(RANKS) as pool:
        places = list(pool.map(lambda rank: study_of(rank, port, cells), range(RANKS)))
    (first, found), *others = places
    assert (first.local_ranks, first.nodes) == (2, 2)
    assert found == [("result", {"rank": 0})] * 3
    ran = [[(name, rank, per_node) for name, rank, per_node, _ in place.ran] for place, _ in places]
    assert ran[0] == [("all", 0, 2), ("one", 0, 2), ("two", 0, 2)]
    assert ran[1] == [("all", 1, 2), ("two", 1, 2)]
    assert ran[2:] == [[("all", 2, 2)], [("all", 3, 2)]]
    assert {place.ran[0][-1] for place, _ in others} == {first.ran[0][-1]}, "all ranks of a cell meet at one port"


@pytest.mark.parametrize("world", ["1", "2"])
def test_torchrun_s_variables_are_found(monkeypatch, world):
    variables = {"RANK": "0", "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "LOCAL_RANK": "0", "GROUP_RANK": "0"}
    variables |= {"TORCHELASTIC_RUN_ID": "study", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = launcher(2)
    assert isinstance(found, OutsideLauncher) == (world == "2")
    assert found.nodes == 1
