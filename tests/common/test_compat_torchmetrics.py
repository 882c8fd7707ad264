"""torchmetrics' private parts are still there, and still needed."""

import inspect

import torch
from torchmetrics.image import LearnedPerceptualImagePatchSimilarity

from lit_gans.common._compat.torchmetrics import lpips


def test_the_public_lpips_takes_no_weights():
    """`lpips` can go once the class takes the file of a backbone."""
    arguments = inspect.signature(LearnedPerceptualImagePatchSimilarity).parameters
    assert [*arguments] == ["net_type", "reduction", "normalize", "kwargs"]
    network, names = lpips("squeeze")
    assert network(*torch.zeros(2, 3, 3, 64, 64)).shape == (3, 1, 1, 1)
    assert all(name.startswith("features.") for name in names)
