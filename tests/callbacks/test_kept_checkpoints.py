"""Which checkpoints are kept, without a training."""

import pytest

from lit_gans.callbacks.kept_checkpoints import BestCheckpoints, RecentCheckpoints, numbered


def test_of_equal_values_the_earlier_is_better():
    best = BestCheckpoints(2)
    values = {1: 3.0, 2: 3.0, 3: 5.0, 4: 1.0}
    assert [best.add(step, value, float) for step, value in values.items()] == [[], [], [3], [2]]
    assert best.values == {4: 1.0, 1: 3.0}
    assert (best.step, best.value) == (4, 1.0)


@pytest.mark.parametrize(
    ("num", "every", "kept"), [(1, None, []), (3, None, [3, 4, 5]), (1, 2, [2, 4]), (2, 2, [2, 4, 5])]
)
def test_the_newest_and_the_permanent_stay_and_those_of_another_training(tmp_path, num, every, kept):
    other = numbered(tmp_path, "step", 9)
    other.write_text("9")
    recent = RecentCheckpoints(num, every)
    for step in range(1, 6):
        (tmp_path / "last.ckpt").unlink(missing_ok=True)
        (tmp_path / "last.ckpt").write_text(str(step))
        recent.add(step)
        recent.update(tmp_path, step)
    found = {path: path.read_text() for path in tmp_path.glob("step-*")}
    assert found == {numbered(tmp_path, "step", step): str(step) for step in (*kept, 9)}
