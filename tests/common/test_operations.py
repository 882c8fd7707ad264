"""Operations are counted in forward passes, backward passes and steps; views are not."""

import torch

from lit_gans.common.operations import OperationCounter, count_operations


def test_forward_backward_and_step_are_counted_and_views_are_not():
    weight = torch.ones(2, 3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False, fused=False)

    def step():
        (weight.t() @ torch.ones(2, 1, dtype=weight.dtype)).view(3).sum().backward()
        optimizer.step()

    with OperationCounter() as counter:
        step()
    # the product and the sum, the sum's gradient is a view, the product's gradient, and the update
    assert counter.operations == {"ones": 1, "mm": 2, "sum": 1, "ones_like": 1, "add_": 1}
    optimizer.zero_grad()
    assert count_operations(step) == 6


def test_an_outer_counter_counts_a_second_derivative():
    images = torch.ones(2, 3, requires_grad=True)

    def penalty():
        (slope,) = torch.autograd.grad(images.square().sum(), images, create_graph=True)
        slope.square().sum().backward()

    with OperationCounter() as counter:
        penalty()
    assert counter.operations["pow"] > 2
