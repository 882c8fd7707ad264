import pytest

from lit_gans.common.memory import free_memory


@pytest.mark.parametrize(
    ("job", "step", "free"),
    [("max", "max", 8192), (4000, "max", 4000 - 3000 + 500), ("max", 3100, 3100 - 3000 + 500), (90000, 90000, 8192)],
)
def test_the_memory_limit_of_a_container_or_job_counts(tmp_path, job, step, free):
    """The limit of a SLURM job is that of a parent of the process's own control group."""
    groups, own = tmp_path / "sys/fs/cgroup", tmp_path / "sys/fs/cgroup/job_1/step_0"
    files = {tmp_path / "proc/meminfo": "MemTotal: 99 kB\nMemAvailable: 8 kB\n", own / "memory.max": f"{step}\n"}
    files |= {
        tmp_path / "proc/self/cgroup": "4:memory:/old\n0::/job_1/step_0\n",
        groups / "job_1/memory.max": f"{job}\n",
    }
    for folder in (own, own.parent):
        files |= {folder / "memory.current": "3000\n", folder / "memory.stat": "anon 2500\ninactive_file 500\n"}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert free_memory(tmp_path) == free
    (tmp_path / "proc/self/cgroup").unlink()
    assert free_memory(tmp_path) == 8192
    (tmp_path / "proc/meminfo").unlink()
    assert free_memory(tmp_path) == float("inf")
