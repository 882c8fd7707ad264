import pytest

from benchmarks.turns import ratios, take_turns, turn_order


def test_every_contender_follows_each_other_equally_often():
    seen = []
    works = {name: lambda name=name: seen.append(name) or len(seen) for name in "abc"}
    results = take_turns(works, 4)
    assert [seen[start : start + 3] for start in range(0, 12, 3)] == [["c", "b", "a"], ["a", "b", "c"]] * 2
    assert results == {"a": [3, 4, 9, 10], "b": [2, 5, 8, 11], "c": [1, 6, 7, 12]}
    assert turn_order("ab", 0) == turn_order("ab", 2) == ["b", "a"]


def test_ratios_are_of_the_same_round():
    found = ratios([2.0, 30.0, 400.0], [1.0, 10.0, 100.0])
    assert (found["lower_quartile"], found["median"], found["upper_quartile"]) == (2.5, 3.0, 3.5)
    with pytest.raises(ValueError, match="longer"):
        ratios([1.0], [1.0, 2.0])
