import torch

from lit_gans.data.class_frequencies import in_proportion


def test_frequencies_are_those_of_the_data_within_one_image_and_everywhere_alike():
    labels = torch.tensor([0] * 700 + [1] * 250 + [3] * 49 + [4])[torch.randperm(1000)]
    for num in (1, 17, 1000, 2500):
        found = in_proportion(labels, num)
        difference = found.bincount(minlength=5) - labels.bincount(minlength=5) * num / 1000
        assert len(found) == num
        assert difference.abs().max() < 1
    halves = torch.stack([half.bincount(minlength=5) for half in in_proportion(labels, 2000).chunk(2)])
    assert (halves[0] - halves[1]).abs().max() <= 1


def test_classes_that_are_equally_frequent_take_turns():
    assert in_proportion(torch.arange(10).repeat_interleave(7), 40).tolist() == [*range(10)] * 4
