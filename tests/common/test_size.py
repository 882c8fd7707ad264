import pytest

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import as_size, sides, size_text, size_value


def test_a_square_has_one_form():
    assert [as_size(size) for size in (64, [64], [64, 64], (64, 64))] == [64] * 4
    assert as_size([96, 160]) == (96, 160)
    assert [sides(size) for size in (64, (96, 160))] == [(64, 64), (96, 160)]
    assert [size_text(size) for size in (64, (96, 160))] == ["64x64", "96 high and 160 wide"]
    assert [size_value(size) for size in (64, (96, 160))] == ["64", "[96,160]"]


@pytest.mark.parametrize("size", [0, [], [16, 0], [1, 2, 3], -1])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(RefusedInput, match=r"crop=.* must be at least 1: one number"):
        as_size(size, "crop")
