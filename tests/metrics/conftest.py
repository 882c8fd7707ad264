import pytest

from tests.metrics.cells import Pixels, evaluator_of, images


@pytest.fixture
def evaluator():
    evaluator = evaluator_of(Pixels())
    evaluator.add_real(images(200, 0))
    return evaluator
