import torch

from lit_gans.networks.blocks import padded


def test_padding_reflects_as_often_as_it_takes():
    image = torch.tensor([[1.0, 2.0, 3.0]])[None, None]
    assert padded(image, 8)[0, 0, 0].tolist() == [1, 2, 3, 2, 1, 2, 3, 2]
    assert padded(image, 8).shape == (1, 1, 8, 8)
    whole = torch.rand(1, 2, 12, 20)
    assert torch.equal(padded(whole, 4), whole)
    expected = torch.nn.functional.pad(whole, (0, 4, 0, 4), mode="reflect")
    assert torch.equal(padded(whole, 8), expected)
