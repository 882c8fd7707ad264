"""Evaluation from a checkpoint, a folder and between two folders, and what may be compared."""

import copy
import json
import logging
import sys

import pytest
import torch
from PIL import Image
from torchvision.utils import save_image

from lit_gans.callbacks import GenerativeMetrics
from lit_gans.cli import main as cli
from lit_gans.cli.compare import compare, main
from lit_gans.cli.evaluate import evaluate
from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import to_uint8
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
from lit_gans.metrics.extractors.digits import DigitsExtractor


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


def test_two_folders_are_their_pixels(tmp_path):
    real, fake = pictures(40, 0), pictures(30, 1)
    record = evaluate(
        fake=write(tmp_path / "fake", fake), real=write(tmp_path / "real", real), metrics=metrics(), device="cpu"
    )
    by_hand = Evaluator(DigitsExtractor(), metrics().scores, 30)
    by_hand.add_real(real.mul(255).round().to(torch.uint8))
    expected = by_hand.measure(fake.mul(255).round().to(torch.uint8))
    assert {key: record[key] for key in expected} == pytest.approx(expected, rel=1e-5)
    assert "metric/coverage_digits" in expected
    protocol = record["protocol"]
    assert (protocol["num_real"], protocol["num_fake"], protocol["weights"]) == (40, 30, "pictures")
    assert protocol["scores"]["InceptionScore"] == {"splits": 10}
    assert json.loads((tmp_path / "evaluation_fake.json").read_text()) == record


def test_a_checkpoint_and_the_folder_of_its_samples_agree(checkpoint, random_images, tmp_path):
    module, path = checkpoint
    direct = evaluate(checkpoint=path, data=random_images(), metrics=metrics(), device="cpu")
    folder = write(tmp_path / "fake", module.sample(30, seed=1))
    save_image(torch.zeros(1, 50, 50), tmp_path / "fake/grid.png")  # as lit-gans sample leaves one
    by_folder = evaluate(fake=folder, data=random_images(), metrics=metrics(), device="cpu")
    keys = [key for key in direct if key.startswith("metric/")]
    assert {key: direct[key] for key in keys} == pytest.approx({key: by_folder[key] for key in keys}, rel=1e-4)
    assert direct["protocol"]["data_sha256"] == by_folder["protocol"]["data_sha256"]
    assert direct["weights"] == "raw"
    assert direct["protocol"]["batch_norm"] == "running statistics (evaluation mode)"


def test_a_generator_with_classes_is_measured_inside_them(tiny_gan, random_images, fit, tmp_path):
    module, path = tiny_gan(num_classes=10), str(tmp_path / "gan.ckpt")
    fit(module, random_images(), max_steps=1).save_checkpoint(path)
    inside = {"intra_fid": IntraFID(rank_deficient=True), "class_accuracy": ClassAccuracy()}
    record = evaluate(checkpoint=path, data=random_images(), metrics=metrics(**inside), device="cpu")
    by_hand = Evaluator(DigitsExtractor(), metrics(**inside).scores, 30, num_classes=10)
    by_hand.add_real(random_images())
    expected = by_hand.measure(to_uint8(module.sample(30, seed=1)), torch.arange(30) % 10)
    assert {key: record[key] for key in expected} == pytest.approx(expected, rel=1e-4)
    assert {"metric/intra_fid_digits", "metric/class_accuracy_digits"} < set(expected)
    images = write(tmp_path / "real", pictures(30, 0))
    record = evaluate(checkpoint=path, real=images, metrics=metrics(**inside), device="cpu")
    assert record["left_out"] == {"intra_fid": "the real images have no classes."}
    assert "metric/class_accuracy_digits" in record


def test_folders_of_several_sizes_are_refused_until_a_size_is_given(tmp_path):
    real, fake = write(tmp_path / "real", pictures(30, 0)), write(tmp_path / "fake", pictures(30, 1, size=20))
    with pytest.raises(RefusedInput, match="generated images are 20x20, real images 16x16"):
        evaluate(fake=fake, real=real, metrics=metrics(), device="cpu")
    record = evaluate(fake=fake, real=real, metrics=metrics(), image_size=16, device="cpu")
    assert record["protocol"]["resize"].startswith("pictures to 16x16")
    Image.new("L", (9, 16)).save(tmp_path / "real/zzz.png")
    with pytest.raises(RefusedInput, match=r"zzz.png is 9x16, 000.png 16x16: add image_size=N"):
        evaluate(fake=real, real=real, metrics=metrics(), device="cpu")


def test_refusals(tmp_path, checkpoint):
    real = write(tmp_path / "real", pictures(12, 0))
    only_kid = GenerativeMetrics(DigitsExtractor(), scores={"kid": KernelInceptionDistance(subset_size=20)})
    for arguments, sentence in [
        ({}, "checkpoint=PATH or fake=FOLDER"),
        ({"fake": real, "checkpoint": checkpoint[1]}, "one of them"),
        ({"fake": real, "real": real}, "nothing says the metrics"),
        ({"fake": str(tmp_path / "nothing"), "real": real, "metrics": metrics()}, "no such folder"),
        ({"fake": real, "real": real, "metrics": only_kid}, "no score can be measured: kid: 12 images are too few"),
    ]:
        with pytest.raises(RefusedInput, match=sentence):
            evaluate(**arguments, device="cpu")


@pytest.fixture
def record(tmp_path):
    real, fake = write(tmp_path / "real", pictures(30, 0)), write(tmp_path / "fake", pictures(30, 1))
    return evaluate(fake=fake, real=real, metrics=metrics(), device="cpu")


def test_compares_what_compares_and_names_the_better(record, tmp_path, capsys):
    other = copy.deepcopy(record)
    other["metric/fid_digits"] += 1
    other["metric/is_digits"] += 1
    other["protocol"]["weights"] = "ema"
    for name, content in (("a.json", record), ("b.json", other)):
        (tmp_path / name).write_text(json.dumps(content))
    assert main([str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"A: {tmp_path / 'a.json'}", f"B: {tmp_path / 'b.json'}"]
    assert [line.split()[-1] for line in lines if "metric/fid_digits" in line or "metric/is_digits" in line] == [
        "A",
        "B",
    ]
    assert "note: different weights: pictures and ema" in lines
    better = compare(record, other)
    assert (better["metric/fid_digits"], better["metric/is_digits"]) == ("A", "B")
    assert better["metric/is_spread_digits"] is better["metric/recall_digits"] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data_sha256", "0" * 64),
        ("num_real", 31),
        ("num_fake", 31),
        ("image_size", [32, 32]),
        ("resize", "none"),
        ("quantisation", "truncated"),
        ("extractor", "inception"),
        ("extractor_sha256", "0" * 64),
        ("scores", {}),
    ],
)
def test_refuses_what_does_not_compare_and_says_why(record, field, value):
    other = copy.deepcopy(record)
    other["protocol"][field] = value
    with pytest.raises(RefusedInput, match=rf"A and B are not comparable: {field}: "):
        compare(record, other)


def test_files_that_are_no_evaluations_are_refused(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(RefusedInput, match=r"two files of lit-gans evaluate, not 1"):
        main(["a.json"])
    for name, sentence in (("list", "not an evaluation"), ("broken", "not an evaluation"), ("missing", "no such file")):
        with pytest.raises(RefusedInput, match=sentence):
            main([str(tmp_path / f"{name}.json")] * 2)


def test_few_images_are_measured_by_what_they_allow_and_the_record_says_what_is_left_out(tmp_path, capsys):
    folder = write(tmp_path / "real", pictures(12, 0))
    record = evaluate(fake=folder, real=folder, metrics=metrics(kid=KernelInceptionDistance()), device="cpu")
    assert record["metric/coverage_digits"] == 1
    assert record["left_out"].keys() == {"inception_score", "kid"}
    assert record["left_out"]["kid"].startswith("12 images are too few for subset_size=1000")
    assert set(record["protocol"]["scores"]) == {
        "FrechetInceptionDistance",
        "ClassCoverage",
        "PrecisionRecallDensityCoverage",
    }
    assert record["directions"].keys() == {key for key in record if key.startswith("metric/")}
    assert "left out: inception_score: 12 generated images are too few for 10 splits" in capsys.readouterr().out


def test_says_what_it_does_where_there_is_no_terminal_and_how_much_it_keeps(tmp_path, caplog):
    folder = write(tmp_path / "real", pictures(30, 0))
    with caplog.at_level(logging.INFO, "lit_gans"):
        evaluate(fake=folder, real=folder, metrics=metrics(cache=False), device="cpu")
    assert [message for message in caplog.messages if "full rank" not in message] == [
        "features and logits of single images are stored in memory: 16.2 KiB",
        "reading the real images: 30",
        "digits features of the real images: 30",
        "digits features of the generated images: 30",
    ]


def test_a_checkpoint_s_configuration_calls_no_class_that_is_not_registered(checkpoint, tmp_path):
    content = torch.load(checkpoint[1], weights_only=True)
    touched = tmp_path / "touched"
    node = {"_target_": "subprocess.Popen", "args": ["touch", str(touched)]}
    digits = {"_target_": "lit_gans.metrics.extractors.digits.DigitsExtractor"}
    for config, name in [
        ({"metrics": node}, "subprocess.Popen"),
        ({"metrics": {"_target_": "lit_gans.callbacks.evaluation.GenerativeMetrics", "extractor": node}}, "subprocess"),
        ({"metrics": digits | {"scores": {"kid": [node]}}}, "subprocess.Popen"),
        (
            {"metrics": {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", str(touched)]}}},
            "subprocess.Popen",
        ),
        ({"metrics": {"_target_": "lit_gans.checkpoints.atomic.shutil.rmtree"}}, "shutil.rmtree"),
    ]:
        content["lit_gans"]["config"] = config
        torch.save(content, tmp_path / "hostile.ckpt")
        with pytest.raises(RefusedInput, match=f"the checkpoint's metrics name the class .*{name}.*not registered"):
            evaluate(checkpoint=str(tmp_path / "hostile.ckpt"), device="cpu")
    assert not touched.exists()


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["lit-gans", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code, capsys.readouterr()

    return run


def test_a_module_from_a_user_s_file_is_an_extractor_also_for_kid_and_prdc(tmp_path, monkeypatch, command):
    (tmp_path / "own_features.py").write_text(
        "import torch\n\n\nclass Pooled(torch.nn.Module):\n"
        "    def __init__(self, size: int = 4):\n        super().__init__()\n        self.size = size\n\n"
        "    def forward(self, images):\n"
        "        return torch.nn.functional.adaptive_avg_pool2d(images, self.size).flatten(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    folders = [f"{name}={write(tmp_path / name, pictures(30, seed))}" for seed, name in enumerate(("fake", "real"))]
    own = ["metrics=module", "metrics.extractor.module._target_=own_features.Pooled", "output=a.json", "device=cpu"]
    code, said = command(
        "evaluate", *folders, *own, "metrics.scores.kid.subset_size=10", "+metrics.extractor.module.size=2"
    )
    assert code == 0, said.err
    record = json.loads((tmp_path / "a.json").read_text())
    found = {key for key in record if key.startswith("metric/")}
    assert found == {
        f"metric/{name}_module" for name in ("fid", "kid", "kid_spread", *PrecisionRecallDensityCoverage.directions)
    }
    assert record["left_out"] == {"inception_score": "the extractor has no class logits."}
    code, said = command("evaluate", *folders, *own[:1])
    assert (code, "metrics.extractor.module._target_ is required" in said.err) == (2, True)
    code, said = command("evaluate", *folders, *own, "metrics.extractor.module.size=2")
    assert (code, "takes a plus: +metrics.extractor.module.size=" in said.err) == (2, True)


def test_the_command_line_takes_scores_and_extractors(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    folders = [f"{name}={write(tmp_path / name, pictures(30, seed))}" for seed, name in enumerate(("fake", "real"))]
    scores = [
        "score@metrics.scores.kid=kid",
        "metrics.scores.kid.subset_size=10",
        "metrics.scores.kid.subsets=3",
        "metrics.scores.fid=null",
    ]
    code, said = command("evaluate", *folders, "metrics=digits", *scores, "output=a.json", "device=cpu")
    assert code == 0, said.err
    record = json.loads((tmp_path / "a.json").read_text())
    assert [key for key in record if "metric/" in key] == [
        *("metric/is_digits", "metric/is_spread_digits", "metric/classes_covered"),
        *("metric/kid_digits", "metric/kid_spread_digits"),
    ]
    assert record["protocol"]["scores"]["KernelInceptionDistance"].items() >= {"subsets": 3, "subset_size": 10}.items()
    code, said = command("evaluate", *folders, "metrics=digits", "score@metrics.scores.kid=kid", "device=cpu")
    assert (code, "asked for cannot be measured: kid: 30 images are too few" in said.err) == (2, True)
    code, said = command("evaluate", *folders, "metrics=digits", "metrics.kid.subset_size=10")
    assert (code, "did you mean 'metrics.scores.kid.subset_size'?" in said.err) == (2, True)
    assert command("compare", "a.json", "a.json")[0] == 0
    code, said = command("compare", "a.json", "b.json")
    assert (code, "b.json: there is no such file" in said.err) == (2, True)
    code, said = command("evaluate", *folders, "metrics=inception")
    assert (code, f"put it at {tmp_path / 'hub'}" in said.err) == (2, True)
    code, said = command("evaluate", *folders, "metrics=modes")
    assert (code, "metrics" in said.err) == (2, True)
