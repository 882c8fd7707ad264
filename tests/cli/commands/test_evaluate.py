"""`lit-gans evaluate` of a checkpoint, a folder and between two folders, and `lit-gans compare`."""

import copy
import importlib
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.utils import save_image

from lit_gans.callbacks import GenerativeMetrics
from lit_gans.cli.commands.compare import compare
from lit_gans.cli.commands.evaluate import _default_output, evaluate
from lit_gans.common.errors import RefusedInput
from lit_gans.data.class_frequencies import in_proportion
from lit_gans.data.images import to_uint8
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.unpaired import Unpaired
from lit_gans.latents.truncation import truncated
from lit_gans.metrics import (
    ClassAccuracy,
    ClassCoverage,
    FrechetInceptionDistance,
    InceptionScore,
    IntraFID,
    KernelInceptionDistance,
    PrecisionRecallDensityCoverage,
)
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.base import ModuleExtractor
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.protocol import differences
from lit_gans.models.dcgan import DCGAN


def write(folder, images):
    folder.mkdir()
    for index, image in enumerate(images):
        save_image(image, folder / f"{index:03d}.png")
    return str(folder)


def pictures(num, seed, size=16):
    return torch.randint(0, 256, (num, 1, size, size), generator=torch.Generator().manual_seed(seed)) / 255


def metrics(cache=True, **scores):
    default = {"fid": FrechetInceptionDistance(), "inception_score": InceptionScore(), "classes": ClassCoverage()}
    scores = default | {"prdc": PrecisionRecallDensityCoverage()} | scores
    return GenerativeMetrics(DigitsExtractor(), num_samples=30, batch_size=7, scores=scores, cache=cache)


@pytest.fixture
def checkpoint(tiny_gan, random_images, fit, tmp_path):
    module = tiny_gan()
    trainer = fit(module, random_images(), max_steps=1)
    trainer.save_checkpoint(tmp_path / "gan.ckpt")
    return module, str(tmp_path / "gan.ckpt")


def assert_same_scores(record, other, rel=1e-4):
    """The values of two records are equal but for rounding."""
    one, two = ({key: value for key, value in each.items() if key.startswith("metric/")} for each in (record, other))
    assert one == pytest.approx(two, rel=rel)


def test_two_folders_are_their_pixels(tmp_path):
    real, fake = pictures(40, 0), pictures(30, 1)
    record = evaluate(
        fake=write(tmp_path / "fake", fake), real=write(tmp_path / "real", real), metrics=metrics(), device="cpu"
    )
    by_hand = Evaluator(DigitsExtractor(), metrics().scores, 30)
    by_hand.add_real(real.mul(255).round().to(torch.uint8))
    expected = by_hand.measure(fake.mul(255).round().to(torch.uint8))
    assert_same_scores(record, expected, rel=1e-5)
    assert "metric/coverage_digits" in expected
    protocol = record["protocol"]
    assert (protocol["num_real"], protocol["num_fake"], protocol["weights"]) == (40, 30, "pictures")
    assert protocol["scores"]["InceptionScore"] == {"splits": 10}
    assert json.loads((tmp_path / "evaluation_fake.json").read_text()) == record


def test_truncated_latents_are_measured_and_reported(checkpoint, random_images, tmp_path):
    module, path = checkpoint
    latents = truncated(module.latents(30, 1), 0.5)
    folder = write(tmp_path / "fake", module.decode(latents, seed=1))
    settings = {"data": random_images(), "metrics": metrics(), "device": "cpu"}
    direct = evaluate(checkpoint=path, truncation=0.5, **settings)
    by_folder = evaluate(fake=folder, **settings)
    assert_same_scores(direct, by_folder)
    plain = evaluate(checkpoint=path, **settings)
    assert (direct["protocol"]["truncation"], plain["protocol"]["truncation"]) == (0.5, None)
    assert differences(direct["protocol"], plain["protocol"]) == ([], ["truncation: 0.5 and None"])
    assert direct["metric/fid_digits"] != plain["metric/fid_digits"]
    with pytest.raises(RefusedInput, match="truncation= and direction= apply to a checkpoint only"):
        evaluate(fake=folder, truncation=0.5, **settings)


def test_a_folder_of_arrays_is_measured_from_its_checkpoint(tmp_path):
    np.save(tmp_path / "0.npy", np.zeros((16, 16, 2), np.float32))
    save_image(torch.zeros(1, 50, 50), tmp_path / "grid.png")
    with pytest.raises(RefusedInput, match=r"To measure arrays, pass their checkpoint: checkpoint=PATH instead"):
        evaluate(fake=str(tmp_path), real=str(tmp_path), metrics=metrics(), device="cpu")


def test_a_checkpoint_and_the_folder_of_its_samples_agree(checkpoint, random_images, tmp_path):
    module, path = checkpoint
    direct = evaluate(checkpoint=path, data=random_images(), metrics=metrics(), device="cpu")
    folder = write(tmp_path / "fake", module.sample(30, seed=1))
    for name in ("grid", "interpolation", "directions", "projected"):  # as the commands leave them
        save_image(torch.zeros(1, 50, 50), tmp_path / f"fake/{name}.png")
    by_folder = evaluate(fake=folder, data=random_images(), metrics=metrics(), device="cpu")
    assert_same_scores(direct, by_folder)
    assert direct["protocol"]["data_sha256"] == by_folder["protocol"]["data_sha256"]
    assert direct["weights"] == "raw"
    assert direct["protocol"]["batch_norm"] == "running statistics (evaluation mode)"
    assert direct["protocol"]["precision"] == "at least float32, without TF32"


def test_a_generator_with_classes_is_measured_inside_them(tiny_gan, random_images, fit, tmp_path):
    module, path = tiny_gan(num_classes=10), str(tmp_path / "gan.ckpt")
    fit(module, random_images(), max_steps=1).save_checkpoint(path)
    inside = {"intra_fid": IntraFID(rank_deficient=True), "class_accuracy": ClassAccuracy()}
    record = evaluate(checkpoint=path, data=random_images(), metrics=metrics(**inside), device="cpu")
    by_hand = Evaluator(DigitsExtractor(), metrics(**inside).scores, 30, 7, num_classes=10)
    by_hand.add_real(random_images())
    labels = in_proportion(random_images().real_labels(), 30)
    expected = by_hand.measure(to_uint8(module.decode(module.latents(30, seed=1), labels=labels)), labels)
    assert_same_scores(record, expected)
    assert {"metric/intra_fid_digits", "metric/class_accuracy_digits"} < set(expected)
    assert record["protocol"]["classes"] == "as in the data"
    images = write(tmp_path / "real", pictures(30, 0))
    record = evaluate(checkpoint=path, real=images, metrics=metrics(**inside), device="cpu")
    assert record["left_out"] == {"intra_fid": "the real images have no classes."}
    assert "metric/class_accuracy_digits" in record
    assert record["protocol"]["classes"] == "equal"


def test_data_of_other_classes_are_refused(tiny_gan, fit, tmp_path):
    """They could have as many classes, so that class scores would compare a hat with glasses."""

    def folder(*names):
        root = tmp_path / "-".join(names)
        root.mkdir()
        for name in names:
            write(root / name, pictures(8, 0))
        return Folder(root=str(root), image_size=16, channels=1, batch_size=4, cache=str(tmp_path / "cache"))

    trained_on = folder("cat", "dog")
    module, path = tiny_gan(num_classes=2), str(tmp_path / "gan.ckpt")
    fit(module, trained_on, max_steps=1).save_checkpoint(path)
    settings = {"checkpoint": path, "metrics": metrics(), "device": "cpu"}
    with pytest.raises(RefusedInput, match="other classes than the data: class 0 is cat, not bird; use data"):
        evaluate(data=folder("bird", "dog"), **settings)
    with pytest.raises(RefusedInput, match="other classes than the data: class 2 is missing, not emu; use data"):
        evaluate(data=folder("cat", "dog", "emu"), **settings)
    assert evaluate(data=trained_on, **settings)["protocol"]["classes"] == "as in the data"


def test_folders_of_several_sizes_are_refused_until_a_size_is_given(tmp_path):
    real, fake = write(tmp_path / "real", pictures(30, 0)), write(tmp_path / "fake", pictures(30, 1, size=20))
    with pytest.raises(RefusedInput, match="generated images are 20x20, real images are 16x16"):
        evaluate(fake=fake, real=real, metrics=metrics(), device="cpu")
    record = evaluate(fake=fake, real=real, metrics=metrics(), image_size=16, device="cpu")
    assert record["protocol"]["resize"].startswith("pictures to 16x16")
    Image.new("L", (9, 16)).save(tmp_path / "real/zzz.png")
    with pytest.raises(RefusedInput, match=r"zzz.png has size 9x16, but 000.png has size 16x16: add image_size=N"):
        evaluate(fake=real, real=real, metrics=metrics(), device="cpu")


def test_refusals(tmp_path, checkpoint):
    real = write(tmp_path / "real", pictures(12, 0))
    only_kid = GenerativeMetrics(DigitsExtractor(), scores={"kid": KernelInceptionDistance(subset_size=20)})
    for arguments, sentence in [
        ({}, "checkpoint=PATH or fake=FOLDER"),
        ({"fake": real, "checkpoint": checkpoint[1]}, "either checkpoint=PATH or fake=FOLDER"),
        ({"fake": real, "real": real}, "metrics= is not set"),
        ({"fake": real, "real": real, "metrics": only_kid}, "no score can be measured: kid: 12 images are too few"),
    ]:
        with pytest.raises(RefusedInput, match=sentence):
            evaluate(**arguments, device="cpu")


def test_a_checkpoint_s_configuration_calls_no_class_that_is_not_registered(checkpoint, tmp_path):
    content = torch.load(checkpoint[1], weights_only=True)
    touched = tmp_path / "touched"
    node = {"_target_": "subprocess.Popen", "args": ["touch", str(touched)]}
    digits = {"_target_": "lit_gans.metrics.extractors.digits.DigitsExtractor"}
    for hostile in [
        node,
        digits | {"scores": {"kid": [node]}},
        {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(touched)]}},
    ]:
        content["lit_gans"]["config"] = {"metrics": hostile}
        torch.save(content, tmp_path / "hostile.ckpt")
        with pytest.raises(RefusedInput, match=r"metrics use the class subprocess\.Popen, which is not registered"):
            evaluate(checkpoint=str(tmp_path / "hostile.ckpt"), device="cpu")
    assert not touched.exists()


@pytest.mark.runs
def test_cyclegan_is_measured_in_both_directions(tiny_gan, fit, tmp_path):
    """As the folder of its translations, against the pictures of the domain that they are translated to."""
    both = {domain: pictures(30, number) for number, domain in enumerate(("A", "B"))}
    (tmp_path / "both").mkdir()
    folders = {domain: write(tmp_path / "both" / domain, images) for domain, images in both.items()}
    module = tiny_gan("cyclegan")

    def data():
        return Unpaired(str(tmp_path / "both"), image_size=16, channels=1, batch_size=4, cache=str(tmp_path / "cache"))

    path = str(tmp_path / "cycle.ckpt")
    fit(module, data(), max_steps=1).save_checkpoint(path)
    found = {}
    for direction, given, real in (("a_to_b", "A", "B"), ("b_to_a", "B", "A")):
        settings = {"metrics": metrics(), "device": "cpu"}
        direct = evaluate(checkpoint=path, data=data(), direction=direction, **settings)
        translated = module.translate(both[given].mul(255).round() / 255, direction=direction)
        by_folder = evaluate(fake=write(tmp_path / direction, translated), real=folders[real], **settings)
        assert_same_scores(direct, by_folder)
        assert direct["num_real"] == 30
        found[direction] = json.loads((tmp_path / f"evaluation_cycle{'_b_to_a' * (given == 'B')}.json").read_text())
    assert found["a_to_b"] != found["b_to_a"]


@pytest.mark.parametrize("name", ["cyclegan", "autoencoder_kl"])
def test_no_image_is_translated_twice(tiny_gan, fit, tmp_path, name):
    """Copies are each other's nearest neighbors, so that recall would be 0."""
    (tmp_path / "both").mkdir()
    for number, domain in enumerate(("A", "B")):
        write(tmp_path / "both" / domain, pictures(12 + number, number))
    cache = str(tmp_path / "cache")
    data = Unpaired(str(tmp_path / "both"), image_size=16, channels=1, batch_size=4, cache=cache)
    module, path, scores = tiny_gan(name), str(tmp_path / "gan.ckpt"), metrics()
    trainer = fit(module, data, max_steps=1, callbacks=[scores])
    trainer.save_checkpoint(path)
    found = evaluate(checkpoint=path, data=data, metrics=metrics(), device="cpu")
    num = {"cyclegan": 12, "autoencoder_kl": 13}[name]
    assert found["num_samples"] == found["protocol"]["num_fake"] == scores.protocol["num_fake"] == num
    values = {key: value for key, value in found.items() if key.startswith("metric/")}
    assert values == pytest.approx(scores.values, rel=1e-4)


def test_results_with_another_protocol_are_kept(checkpoint, random_images, tmp_path):
    _, path = checkpoint
    settings = {"checkpoint": path, "data": random_images(), "device": "cpu"}
    first = evaluate(metrics=metrics(), truncation=1.0, **settings)
    second = evaluate(metrics=metrics(), **settings)
    third = evaluate(metrics=metrics(), **settings)
    kept, last = (json.loads((tmp_path / f"evaluation_{name}.json").read_text()) for name in ("gan-1", "gan"))
    assert kept == first
    assert last == third == second
    assert not (tmp_path / "evaluation_gan-2.json").exists()


def test_missing_averaged_weights_are_refused_before_images_are_read(checkpoint):
    class Unread(Digits):
        def real_batches(self, *_):
            raise AssertionError("the images are read")

    _, path = checkpoint
    with pytest.raises(RefusedInput, match="weights=ema: this checkpoint holds no averaged weights"):
        evaluate(checkpoint=path, data=Unread(image_size=16), metrics=metrics(), weights="ema", device="cpu")


def test_truncation_without_an_effect_is_refused(tiny_gan, random_images, fit, tmp_path):
    """The generator of FastGAN scales each latent to the same length."""
    path = str(tmp_path / "gan.ckpt")
    fit(tiny_gan("projected_gan", channels=3), random_images(channels=3), max_steps=1).save_checkpoint(path)
    with pytest.raises(RefusedInput, match=r"truncation=0\.5: the images of this ProjectedGAN depend only on"):
        evaluate(checkpoint=path, data=random_images(channels=3), metrics=metrics(), truncation=0.5, device="cpu")


@pytest.mark.parametrize("value_range", [(255, 0), (0, 0), (0, float("nan"))])
def test_a_wrong_range_of_values_is_refused(tmp_path, value_range):
    folder = write(tmp_path / "images", pictures(4, 0))
    with pytest.raises(RefusedInput, match="the second number must be greater than the first one"):
        evaluate(fake=folder, real=folder, metrics=metrics(), value_range=value_range, device="cpu")


def test_a_range_that_leaves_images_dark_is_reported(tmp_path, caplog):
    """8-bit samples of a run on 12-bit images are compared with the images themselves."""
    folder = write(tmp_path / "images", pictures(30, 0))
    evaluate(fake=folder, real=folder, metrics=metrics(), value_range=(0, 4095), device="cpu")
    assert caplog.text.count("value_range=[0.0, 4095.0], its images only have values from 0 to 16, of 0 to 255") == 2


def test_an_extractor_that_the_generator_was_trained_against_is_reported(
    checkpoint, random_images, monkeypatch, caplog
):
    _, path = checkpoint
    settings = {"checkpoint": path, "data": random_images(), "metrics": metrics(), "device": "cpu"}
    assert evaluate(**settings)["protocol"]["trained_against"] == []
    assert "trained against" not in caplog.text
    monkeypatch.setattr(DCGAN, "trains_against", ("digits",))
    assert evaluate(**settings)["protocol"]["trained_against"] == ["digits"]
    assert "the feature extractor digits was part of the generator's loss" in caplog.text


# ---- the command line: extractors and scores by their keys


@pytest.fixture
def folders(tmp_path):
    """The arguments that name two folders of pictures."""
    return [f"{name}={write(tmp_path / name, pictures(30, seed))}" for seed, name in enumerate(("fake", "real"))]


def test_a_module_of_a_users_file_is_an_extractor_also_for_kid_and_prdc(folders, tmp_path, monkeypatch, ran, refused):
    (tmp_path / "own_features.py").write_text(
        "import torch\n\n\nclass Pooled(torch.nn.Module):\n"
        "    def __init__(self, size: int = 4):\n        super().__init__()\n        self.size = size\n\n"
        "    def forward(self, images):\n"
        "        return torch.nn.functional.adaptive_avg_pool2d(images, self.size).flatten(1)\n"
    )
    monkeypatch.setattr("sys.path", list(sys.path))
    own = ["metrics=module", "metrics.extractor.module._target_=own_features.Pooled", "output=a.json", "device=cpu"]
    ran("evaluate", *folders, *own, "metrics.scores.kid.subset_size=10", "+metrics.extractor.module.size=2")
    record = json.loads((tmp_path / "a.json").read_text())
    found = {key for key in record if key.startswith("metric/")}
    assert found == {
        f"metric/{name}_module" for name in ("fid", "kid", "kid_spread", *PrecisionRecallDensityCoverage.directions)
    }
    assert record["left_out"] == {"inception_score": "the extractor has no class logits."}
    assert "metrics.extractor.module._target_: Missing mandatory value" in refused("evaluate", *folders, *own[:1])


def test_the_command_line_takes_scores_and_extractors(folders, tmp_path, ran):
    scores = ["score@metrics.scores.kid=kid", "metrics.scores.kid.subset_size=10", "metrics.scores.kid.subsets=3"]
    scores += ["metrics.scores.fid=null"]
    ran("evaluate", *folders, "metrics=digits", *scores, "output=a.json", "device=cpu")
    record = json.loads((tmp_path / "a.json").read_text())
    measured = {key for key in record if "metric/" in key}
    assert "metric/fid_digits" not in measured
    assert {"metric/is_digits", "metric/classes_covered", "metric/kid_digits", "metric/kid_spread_digits"} <= measured
    assert record["protocol"]["scores"]["KernelInceptionDistance"].items() >= {"subsets": 3, "subset_size": 10}.items()
    ran("compare", "a.json", "a.json")


@pytest.mark.runs
def test_more_metrics_measure_the_same_images_and_write_their_own_files(folders, tmp_path, ran, refused):
    more = ["metrics=digits", "+metrics@more_metrics.lite=efficientnet_lite0", "output=both.json", "device=cpu"]
    ran("evaluate", *folders, *more)
    for name, file in (("digits", "both.json"), ("efficientnet_lite0", "both_lite.json")):
        ran("evaluate", *folders, f"metrics={name}", "output=alone.json", "device=cpu")
        alone, found = (json.loads((tmp_path / each).read_text()) for each in ("alone.json", file))
        assert_same_scores(found, alone)
        assert found["protocol"] == alone["protocol"]
        assert f"metric/fid_{name}" in found
    assert "more_metrics.lite.seed=3 differs from metrics.seed=1" in refused(
        "evaluate", *folders, *more, "more_metrics.lite.seed=3"
    )


def test_missing_weights_are_an_error_in_one_sentence(folders, tmp_path, monkeypatch, refused):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    (line,) = refused("evaluate", *folders, "metrics=inception", "output=a.json").splitlines()
    assert line.startswith("lit-gans: the Inception weights are missing: download https://")
    assert f" to {tmp_path / 'hub'}" in line
    assert line.endswith("or set its path with metrics.extractor.weights=PATH.")


# ---- which evaluations may be compared, and which is better


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The record of an evaluation."""
    folder = tmp_path_factory.mktemp("measured")
    real, fake = write(folder / "real", pictures(30, 0)), write(folder / "fake", pictures(30, 1))
    return evaluate(fake=fake, real=real, metrics=metrics(), device="cpu")


@pytest.fixture
def files(measured, tmp_path):
    """Writes the record and another one, and returns the paths of both."""

    def write_both(other):
        for name, content in (("a.json", measured), ("b.json", other)):
            (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / "a.json"), str(tmp_path / "b.json")

    return write_both


def test_compares_what_compares_and_names_the_better(measured, files, capsys):
    other = copy.deepcopy(measured)
    other["metric/fid_digits"] += 1
    other["metric/is_digits"] += 1
    other["protocol"]["weights"] = "ema"
    one, two = files(other)
    better = compare([one, two])
    assert (better["metric/fid_digits"], better["metric/is_digits"]) == ("A", "B")
    assert better["metric/is_spread_digits"] == better["metric/recall_digits"] == ""
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"A: {one}", f"B: {two}"]
    assert [line.split()[-2] for line in lines if "fid_digits " in line or "is_digits " in line] == ["A", "B"]
    assert "note: different weights: pictures and ema" in lines
    other["metric/fid_digits"] = float("nan")
    assert compare(files(other))["metric/fid_digits"] == ""


def test_an_extractor_that_a_generator_was_trained_against_is_an_error(measured, files):
    other = copy.deepcopy(measured)
    other["protocol"]["trained_against"] = ["efficientnet_lite0"]
    compare(files(other))
    other["protocol"]["trained_against"] = ["efficientnet_lite0", "digits"]
    with pytest.raises(RefusedInput, match=r"b\.json cannot be compared: the feature extractor digits was part of"):
        compare(files(other))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data_sha256", "0" * 64),
        ("labels_sha256", "0" * 64),
        ("num_real", 31),
        ("num_fake", 31),
        ("image_size", [32, 32]),
        ("resize", "none"),
        ("quantization", "truncated"),
        ("extractor", "inception"),
        ("extractor_sha256", "0" * 64),
        ("scores", {}),
    ],
)
def test_refuses_what_does_not_compare_and_says_why(measured, files, field, value):
    other = copy.deepcopy(measured)
    other["protocol"][field] = value
    with pytest.raises(RefusedInput, match=rf"are not comparable: {field}: "):
        compare(files(other))


def test_several_files_are_compared(refused, tmp_path):
    assert "needs 2 to 26 files of lit-gans evaluate, or folders of them: A.json B.json, and got 1" in refused(
        "compare", "a.json"
    )
    (tmp_path / "seeds").mkdir()
    assert "seeds has no JSON file: write one for each seed" in refused("compare", "seeds", "seeds")


def test_a_folder_is_a_column_with_mean_and_deviation_over_its_files(measured, tmp_path, capsys):
    key = "metric/fid_digits"
    columns = {"a": (10.0, 12.0, 17.0), "b": (12.0,), "c": (8.0, 16.0)}
    for name, values in columns.items():
        (tmp_path / name).mkdir()
        for seed, value in enumerate(values):
            path = "last.ckpt" if name == "b" else "best.ckpt"
            record = measured | {key: value, "checkpoint": f"run/checkpoints/{path}"}
            (tmp_path / name / f"{seed}.json").write_text(json.dumps(record))
    folders = [str(tmp_path / name) for name in columns]
    assert compare(folders)[key] == "", "B and C are equally good"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"A: {folders[0]} (3 files)", f"B: {folders[1]}", f"C: {folders[2]} (2 files)"]
    (row,) = (line.split("|") for line in lines if key in line)
    assert [cell.strip() for cell in row[2:5]] == ["13 ± 3.6", "12", "12 ± 5.7"]
    assert "some values are of best.ckpt, others of last.ckpt" in lines[-1]
    assert compare(folders[:2])[key] == "B"
    assert "of best.ckpt" in capsys.readouterr().out
    compare([folders[0], folders[2]])
    assert "of best.ckpt" not in capsys.readouterr().out
    (tmp_path / "c/1.json").write_text(json.dumps(measured | {key: float("nan")}))
    assert compare([folders[1], folders[2]])[key] == ""
    assert "nan ± nan" in capsys.readouterr().out
    protocol = measured["protocol"] | {"num_fake": 31}
    (tmp_path / "c/1.json").write_text(json.dumps(measured | {"protocol": protocol}))
    with pytest.raises(RefusedInput, match=r"a/0\.json and .*c/1\.json are not comparable: num_fake: 30 and 31"):
        compare(folders)


SCORE = """
from lit_gans.metrics.scores.base import StoredFeatures

class Spread(StoredFeatures):
    directions = {"spread": "max"}

    def compute(self):
        return self.stored()[1].std() * 1
"""


def test_scores_and_extractors_of_one_name_with_another_code_do_not_compare(tmp_path, monkeypatch):
    for seed, name in enumerate(("real", "fake")):
        write(tmp_path / name, pictures(30, seed))
    monkeypatch.syspath_prepend(str(tmp_path))

    def record(name, text, extractor=None):
        (tmp_path / "users_score.py").write_text(text)
        monkeypatch.delitem(sys.modules, "users_score", raising=False)
        importlib.invalidate_caches()
        score = importlib.import_module("users_score").Spread()
        own = GenerativeMetrics(extractor or DigitsExtractor(), num_samples=30, scores={"spread": score})
        folders = {key: str(tmp_path / key) for key in ("real", "fake")}
        evaluate(**folders, metrics=own, device="cpu", output=str(tmp_path / name))
        return str(tmp_path / name)

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = record("a.json", SCORE)
    assert compare([first, record("b.json", SCORE)]) == {"metric/spread_digits": ""}
    with pytest.raises(RefusedInput, match="not comparable: scores"):
        compare([first, record("c.json", SCORE.replace("* 1", "* 2"))])
    flat, pooled = nn.Flatten(), nn.Sequential(nn.AvgPool2d(2), nn.Flatten())  # neither has weights
    one, other = (record(f"{i}.json", SCORE, ModuleExtractor(module)) for i, module in enumerate((flat, pooled)))
    with pytest.raises(RefusedInput, match="not comparable: extractor_sha256"):
        compare([one, other])


def test_a_module_that_a_hook_changes_is_told_apart_by_its_features_whatever_the_device_rounds(tmp_path):
    for seed, name in enumerate(("real", "fake")):
        write(tmp_path / name, pictures(30, seed))

    def record(name, factor):
        module = nn.Sequential(nn.AvgPool2d(4), nn.Flatten())
        module.register_forward_hook(lambda module, images, features: factor * features)  # in no digest
        own = GenerativeMetrics(
            ModuleExtractor(module), num_samples=30, scores={"kid": KernelInceptionDistance(subset_size=20)}
        )
        folders = {key: str(tmp_path / key) for key in ("real", "fake")}
        evaluate(**folders, metrics=own, device="cpu", output=str(tmp_path / name))
        return str(tmp_path / name)

    first = record("a.json", 1)
    compare([first, record("b.json", 1 + 1e-4)])
    with pytest.raises(
        RefusedInput, match=r"not comparable: extractor_probe: \[0\.\d+, 0\.\d+\] and \[\d\.\d+, \d\.\d+\]"
    ):
        compare([first, record("c.json", 2)])


def test_results_have_a_place_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    downloaded = tmp_path / "temporary/run/checkpoints/last.ckpt"
    folder = _default_output(downloaded, "file:///far/run", "a_to_b").parent
    assert folder.parent.name == "outputs", "not beside the download, which is removed"
    names = {
        _default_output(None, name, "a_to_b").name for name in ("samples_0.5", "samples_0.7", "images", "images.zip")
    }
    assert len(names) == 4
