"""Every class that a file of the first edition can name is found under its present name."""

import pytest
from hydra.utils import get_class

from lit_gans.checkpoints.renamed import current_path, current_paths

FIRST_EDITION = (
    "callbacks.checkpoint.Checkpoint",
    "callbacks.early_stopping.EarlyStopping",
    "callbacks.ema.EMA",
    "callbacks.generative_metrics.GenerativeMetrics",
    "callbacks.init_from.InitFrom",
    "callbacks.mode_coverage.ModeCoverage",
    "callbacks.paired_l1.PairedL1",
    "callbacks.progress_bar.ProgressBar",
    "callbacks.samples.Samples",
    "callbacks.throughput.Throughput",
    "callbacks.watch.Watch",
    "data.digits.Digits",
    "data.folder.Folder",
    "data.huggingface.Huggingface",
    "data.paired.DigitEdges",
    "data.paired.PairedFolder",
    "data.points.Grid",
    "data.points.Ring",
    "data.stacked_digits.StackedDigits",
    "data.streaming.Streaming",
    "data.torchvision_sets.CIFAR10",
    "data.torchvision_sets.CIFAR100",
    "data.torchvision_sets.CelebA",
    "data.torchvision_sets.EMNIST",
    "data.torchvision_sets.FashionMNIST",
    "data.torchvision_sets.Imagenet",
    "data.torchvision_sets.KMNIST",
    "data.torchvision_sets.LSUN",
    "data.torchvision_sets.MNIST",
    "data.torchvision_sets.STL10",
    "data.torchvision_sets.SVHN",
    "loggers.csv_metrics.CSVMetrics",
    "metrics.digits.DigitsExtractor",
    "metrics.efficientnet_lite0.EfficientnetLite0",
    "metrics.extractor.ModuleExtractor",
    "metrics.inception.InceptionExtractor",
    "metrics.scores.class_coverage.ClassCoverage",
    "metrics.scores.fid.FID",
    "metrics.scores.inception_score.InceptionScore",
    "metrics.scores.kid.KID",
    "metrics.scores.mifid.MiFID",
    "metrics.scores.prdc.PRDC",
    "models.d2gan.D2GAN",
    "models.d3gan.D3GAN",
    "models.dcgan.DCGAN",
    "models.gan.GAN",
    "models.pix2pix.Pix2Pix",
    "models.sngan.SNGAN",
    "models.wgan_gp.WGANGP",
    "optim.Adam",
    "optim.AdamW",
    "optim.Constant",
    "optim.ConstantThenLinear",
    "optim.Linear",
    "optim.RMSprop",
    "optim.SGD",
    "strategies.ddp.NetworkDDP",
    "strategies.deepspeed.NetworkDeepSpeed",
    "strategies.fsdp.NetworkFSDP",
)
RENAMED = {
    "FID": "FrechetInceptionDistance",
    "KID": "KernelInceptionDistance",
    "MiFID": "MemorizationInformedFrechetInceptionDistance",
    "PRDC": "PrecisionRecallDensityCoverage",
}


@pytest.mark.parametrize("name", FIRST_EDITION)
def test_the_class_is_found_where_it_is_now(name):
    found = get_class(current_path(f"lit_gans.{name}"))
    assert found.__name__ == RENAMED.get(name.rpartition(".")[2], name.rpartition(".")[2])
    assert current_path(f"{found.__module__}.{found.__qualname__}") == f"{found.__module__}.{found.__qualname__}"


def test_paths_of_others_stay():
    for path in ("torch.optim.Adam", "Adam", "lsgan.LSGAN", "lit_gans.metrics.extractors.base.ModuleExtractor"):
        assert current_path(path) == path


def test_paths_anywhere_in_a_file_are_translated_and_nothing_else():
    old, new = "lit_gans.optim.Adam", "lit_gans.training.optim.Adam"
    plain = {"a": [{"_target_": old, "name": old}], "b": {"class_path": old, "init_args": {"eps": 1e-8}}, "c": None}
    assert current_paths(plain) == {
        "a": [{"_target_": new, "name": old}],
        "b": {"class_path": new, "init_args": {"eps": 1e-8}},
        "c": None,
    }


@pytest.mark.parametrize("exported", [False, True])
def test_scores_that_were_arguments_of_their_own_are_in_the_dictionary(exported):
    def node(path, arguments):
        return {"class_path": path, "init_args": arguments} if exported else {"_target_": path, **arguments}

    old = {"seed": 1, "kid": None, "mifid": node("lit_gans.metrics.scores.mifid.MiFID", {"threshold": 0.2})}
    current = current_paths(node("lit_gans.callbacks.generative_metrics.GenerativeMetrics", old))
    mifid = "lit_gans.metrics.scores.mifid.MemorizationInformedFrechetInceptionDistance"
    scores = {"kid": None, "mifid": node(mifid, {"cosine_distance_eps": 0.2})}
    assert current == node("lit_gans.callbacks.evaluation.GenerativeMetrics", {"seed": 1, "scores": scores})
    assert current_paths(current) == current
