"""Older versions of torch need a driver even for fake CUDA tensors."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.fixture(autouse=True, scope="session")
def fake_tensors_need_no_driver():
    try:
        with FakeTensorMode():
            torch.ones(2, 2, device="cuda")[:, 1].lt(0.5)
    except RuntimeError as error:
        pytest.skip(f"this version of torch needs a driver for fake CUDA tensors: {error}")
