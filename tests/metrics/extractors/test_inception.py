import hashlib

import numpy as np
import pytest
import torch
import torch_fidelity
from torch.utils.data import Dataset
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

from benchmarks.metrics import random_weights
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.inception import SHA256, InceptionExtractor
from lit_gans.metrics.scores.inception_score import inception_scores


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A randomly initialized Inception in the file format of the real one, with batch norm that does something."""
    return random_weights(tmp_path_factory.mktemp("weights") / "inception.pth", seed=0)


@pytest.fixture(scope="module")
def extractor(weights):
    return InceptionExtractor(str(weights), sha256=hashlib.sha256(weights.read_bytes()).hexdigest())


class Images(Dataset):
    """Colored blocks, so that random features differ."""

    def __init__(self, num, seed):
        blocks = torch.rand(num, 3, 4, 4, generator=torch.Generator().manual_seed(seed)) * (1 - 0.4 * seed)
        self.images = torch.nn.functional.interpolate(blocks, (32, 32)).mul(255).to(torch.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


def test_features_are_torch_fidelity_s_of_the_same_file(weights, extractor):
    images = Images(3, 1).images
    theirs = FeatureExtractorInceptionV3("i", ["2048", "logits_unbiased"], str(weights))(images)
    ours = extractor(images)
    assert theirs[0].std() > 0.01
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert extractor(Images(1, 0).images[:, :1])[0].dtype == torch.float32, "gray, and of full precision"


@pytest.mark.slow  # torch-fidelity's eigenvalues of a matrix that is not symmetric take half a minute
def test_fid_and_inception_score_are_torch_fidelity_s_on_the_same_images_and_file(weights, extractor):
    real, fake = Images(24, 0), Images(20, 1)
    evaluator = Evaluator(extractor, {"fid": FrechetInceptionDistance()}, 20, seed=0)
    evaluator.add_real(real.images)
    found = evaluator.measure(fake.images)["metric/fid_inception"]
    expected = torch_fidelity.calculate_metrics(
        input1=fake,
        input2=real,
        fid=True,
        isc=True,
        isc_splits=2,
        feature_extractor_weights_path=str(weights),
        cuda=False,
        cache=False,
        verbose=False,
        save_cpu_ram=True,
        batch_size=8,
    )
    assert found == pytest.approx(expected["frechet_inception_distance"], rel=1e-4)
    assert found > 1e-3
    order = torch.from_numpy(np.random.RandomState(2020).permutation(20))
    scores = inception_scores(extractor(fake.images)[1][order], 2)
    assert scores.mean().item() == pytest.approx(expected["inception_score_mean"], rel=1e-6)
    assert scores.std(correction=0).item() == pytest.approx(expected["inception_score_std"], rel=1e-4)


def test_the_protocol_s_sha256_is_the_file_s(weights, extractor):
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert extractor.sha256 == digest
    with pytest.raises(RefusedInput, match=f"has the sha256 {digest}, expected {SHA256}"):
        InceptionExtractor(str(weights))


def test_a_missing_file_says_what_to_fetch_and_where_to_put_it(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    place = tmp_path / "hub/checkpoints/weights-inception-2015-12-05-6726825d.pth"
    with pytest.raises(
        RefusedInput, match=r"download https://github.com/toshas/torch-fidelity/\S+6726825d.pth"
    ) as caught:
        InceptionExtractor()
    assert f" to {place}" in str(caught.value)


def test_weights_of_another_network_are_refused_in_one_sentence(tmp_path):
    torch.save({"features.0.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(RefusedInput, match=r"other\.pth .*Inception v3: missing .* \"Conv2d_1a_3x3\.conv\.weight\"\.$"):
        InceptionExtractor(str(tmp_path / "other.pth"), sha256=None)
