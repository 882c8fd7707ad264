"""Which source implements which protocol: what callbacks, metrics and models ask for."""

import pytest

from lit_gans.data.contracts import HasModes, ImageSource, Labeled, Paired, Plottable
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.paired import DigitEdges
from lit_gans.data.sources.points import Ring
from lit_gans.data.sources.stacked_digits import StackedDigits

EXPECTED = {
    Digits: {ImageSource, Labeled},
    Ring: {ImageSource, Labeled, Plottable, HasModes},
    StackedDigits: {ImageSource, Labeled, HasModes},
    DigitEdges: {ImageSource, Labeled, Paired},
}


@pytest.mark.parametrize("source", EXPECTED)
def test_sources_implement_these_protocols_and_no_others(source):
    data = source()
    protocols = {ImageSource, Labeled, Plottable, HasModes, Paired}
    assert {protocol for protocol in protocols if isinstance(data, protocol)} == EXPECTED[source]
