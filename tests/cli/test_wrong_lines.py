"""Wrong command lines end before any device work with exit code 2 and one line, and write no file."""

import json
import shlex
from pathlib import Path

import pytest
from PIL import Image

from lit_gans.cli import main as cli
from lit_gans.cli.command import names
from lit_gans.training.module import AdversarialModule
from tests.commands import TINY

# arguments of a command and a part of what it says; TINY stands for the overrides of a tiny run
TABLE = """
validate | did you mean 'evaluate'?
LONG | there is no command 'xxx
train TINY model=LONG | Could not find 'model/xxx
train TINY data=folder data.root=LONG | xxx: there is no such folder; give one that contains images.
train TINY data=folder data.root=LONG/LONG | xxx: there is no such folder; give one that contains images.
train TINY data=paired_folder data.root=LONG model=pix2pix | xxx: there is no such folder
train TINY data=folder data.root=here data.labels=LONG.csv | here: there is no such folder
train TINY resume=LONG.ckpt | resume=xxx
train TINY resume=LONG/LONG.ckpt | cannot be opened
train TINY init_from=LONG.ckpt | File name too long
train TINY hydra.run.dir=LONG | File name too long
train TINY hydra.run.dir=new/LONG | File name too long
train experiment=LONG/experiment/mine.yaml | expected an existing YAML file in a folder named experiment
train TINY metrics=inception metrics.extractor.weights=LONG | File name too long
sample checkpoint=LONG | File name too long
sample checkpoint=run output=LONG | File name too long
interpolate checkpoint=run output=LONG.gif | File name too long
evaluate checkpoint=run metrics=digits +metrics@more_metrics.a=digits more_metrics.a.seed=3 | seed=3 differs from metri
evaluate fake=LONG real=LONG metrics=digits | xxx: there is no such folder
evaluate fake=pictures metrics=digits | the real images are missing: set real=FOLDER, or data=NAME.
project checkpoint=run input=LONG | xxx: there is no such folder
report run=LONG | there is no config.yaml in it
compare LONG.json LONG.json | File name too long
fit -c LONG.yaml | xxx
train TINY model=dcgam | Could not find 'model/dcgam'; did you mean 'dcgan'?
train modle=dcgan | lit-gans: there is no key 'modle'; did you mean 'model'?
describe data=digits | lit-gans: describe has no key 'data'; it has data.image_size, data.channels.
sample checkpoint=run strategy=ddp | lit-gans: sample has no key 'strategy'; lit-gans sample --help lists the keys.
train TINY schedule=linear | lit-gans: train has no key 'schedule'; did you mean schedule@model.discriminator_optimizer
train TINY metrics@callbacks.mine=digits | no key 'metrics@callbacks.mine'; to add it, write +metrics@callbacks.mine=NA
train TINY +data=digits | there is a key 'data' already; write data=VALUE.
train TINY +data.batch_size=4 | there is a key 'data.batch_size' already; write data.batch_size=VALUE.
train TINY ~xyzzy | lit-gans: there is no 'xyzzy' to remove.
train TINY ~data=mnist | ~data=mnist is not valid: leave it out, or choose an option with data=NAME.
train experiment=[dcgan_digits,sngan_digits] | not a list; to train each, write -m experiment=dcgan_digits,sngan_digits.
describe model=[dcgan,sngan] | model=[dcgan,sngan]: model is one option, not a list.
train experiment=dcgan_digits,sngan_digits | sngan_digits: lit-gans train -m trains each value; a list has brackets: [
train TINY @xyzzy=3 | @xyzzy=3: '@xyzzy' is no key: settings are given as KEY=VALUE.
train TINY model.größe=3 | model.größe=3: 'model.größe' is no key: settings are given as KEY=VALUE.
train TINY =3 | settings are given as KEY=VALUE
train xyz,zy=1 | xyz,zy=1: 'xyz,zy' is no key: settings are given as KEY=VALUE.
train TINY xyzzy=3 | lit-gans: there is no key 'xyzzy'; lit-gans train --help lists the keys.
train TINY callbacks.mine._target_=my.Callback | to add an object, write +callbacks.mine._target_=CLASS.
train TINY +minutes=60 | +minutes=60 has no effect: there is no key 'minutes'; valid names: callbacks, data, init_from,
sample checkpoint=run +quality=9 | +quality=9 has no effect: there is no key 'quality'; valid names: checkpoint,
sample checkpoint=run +data.quality=9 | +data.quality=9 has no effect: there is no key 'data';
train TINY model.n_critc=3 | lit-gans: there is no key 'model.n_critc'; did you mean 'model.n_critic'?
train experiment=dcgan_digits batch_size=32 | did you mean 'data.batch_size' or 'metrics.batch_size'?
train TINY --max_steps 10 | unrecognized arguments: --max_steps: settings are given as key=value; did you mean 'tr
train experiment=experiment/swept.yaml | hydra.mode=MULTIRUN in a file starts no sweep: add -m to the command line
train TINY +model.n_critc=1 | model.n_critc: DCGAN has no such argument; did you mean 'n_critic'?
train TINY +model.generator_optimizer.momentum=0.9 | has no effect: Adam has no such argument; valid names:
train TINY model.n_critic=abc | model.n_critic=abc: expected a whole number
train TINY model.n_critic=0 | model: n_critic=0 must be at least 1.
train TINY model.generator_optimizer.lr=abc | "model.generator_optimizer": Not of type OptimizerConfig: lr='abc'
train TINY callbacks=power_ema callbacks.power_ema.widths=[0.1,0.3] | width=0.3 must be greater than 0 and less than
train TINY callbacks.ema=3 | callbacks.ema=3 is not valid: expected callbacks.ema.NAME=VALUE
train TINY data.image_size=[40,50] | lit-gans: data.image_size=[40,50]: the dcgan networks double a map
train TINY data.batch_size=5001 | the data has 5000 images, but one step needs 5001
train TINY trainer.devices=1000 | cores: use at most trainer.devices=
train TINY trainer.accelerator=cuda | `CUDAAccelerator` can not run on your system
train TINY trainer.gradient_clip_val=1 | use model.clip_gradients=1
train TINY trainer.logger=true | trainer.logger cannot be set: use logger=NAME, or logger=none.
train TINY trainer.logger=false | trainer.logger cannot be set: use logger=NAME, or logger=none.
train TINY -m seed=0,1 hydra.run.dir=wanted | hydra.run.dir= has no effect with -m: use hydra.sweep.dir=FOLDER
train TINY -m seed=0,1 trainer.default_root_dir=all | would be the folder of every run: use hydra.sweep.dir=FOLDER
train TINY logger=null | logger=null is not valid: use logger=none.
train TINY precision=null | precision=null is not valid: use precision=fp32.
train TINY schedule@model.generator_optimizer.schedule=null | use schedule@model.generator_optimizer.schedule=constant.
train TINY score@metrics.scores.kid=null | is not valid: use metrics.scores.kid=null.
train TINY trainer=null | trainer=null is not valid: leave it out, or choose an option with trainer=NAME.
train TINY ~model | ~model is not valid: leave it out, or choose an option with model=NAME.
train TINY ~trainer | ~trainer is not valid: leave it out
train ~experiment | ~experiment is not valid: leave it out
train TINY model.generator_optimizer={nonsense:1} | there is no key 'model.generator_optimizer.nonsense'
train experiment=r3gan_cifar10 callbacks.ema.decay=0.9 | no effect, because callbacks.ema.half_life is set, and replaces
train TINY callbacks.early_stopping.monitor=metric/nonsense | monitor=metric/nonsense: nothing measures it
fit -c run/config.yaml | run/config.yaml is the configuration of lit-gans train: use run/run.yaml
fit --model DCGAN --data Digits --seed_everything 5 --data.seed 5 | the networks and the data use model.seed=0: set --mo
train TINY -m seed=0,1 resume=auto | add hydra.sweep.dir=FOLDER to continue the sweep in this folder
train TINY trainer.num_nodes=2 | trainer.num_nodes=2: the address of the first node is not set
train TINY precision=fp16 | AMP with fp16 is not supported on CPU
train TINY model._target_=lit_gans.data.sources.digits.Digits | expected a class derived from AdversarialModule.
train TINY +callbacks.mine._target_=nothing.Nothing | callbacks.mine: nothing.Nothing cannot be imported
train TINY resume=nowhere.ckpt | resume=nowhere.ckpt: there is no such checkpoint
train TINY resume=empty | resume=empty: there is no checkpoint in this folder; use the folder of a run, or the path of
train TINY resume=run/checkpoints | the newest checkpoint in run/checkpoints is run/checkpoints/last.ckpt
train TINY resume=null | resume=null is not valid: expected none, auto, or the path of a checkpoint or of a run.
train experiment=experiment/swept.yml | files whose names end in .yaml; rename the file.
train TINY init_from=run resume=run | resume=run continues a run, but init_from=run starts a new run
train TINY trainer.default_root_dir=memory://bucket/run | memory://bucket/run: expected a local folder
train TINY hydra.run.dir=text.txt/run | hydra.run.dir=text.txt/run: the folder cannot be created
sample | checkpoint is required, for example: lit-gans sample checkpoint=outputs/
sample run | run: settings are given as KEY=VALUE, such as checkpoint=run.
sample checkpoint=run output=s3://bucket/x | output=s3:/bucket/x: expected a local folder
evaluate checkpoint=run metrics=digits output=s3://bucket/e.json | output=s3:/bucket: expected a local folder
export checkpoint=run output=memory://bucket/nets | memory:/bucket/nets: expected a local folder
interpolate checkpoint=run num=0 | num=0 must be at least 1
interpolate checkpoint=run steps=0 | steps=0 must be at least 1
interpolate checkpoint=run output=walk.gif fps=100 | fps=100 must be at most 50
directions checkpoint=run steps=0 | steps=0 must be at least 1
directions checkpoint=run output=walk.gif fps=100 | fps=100 must be at most 50
project checkpoint=run input=pictures steps=-5 | steps=-5 must be at least 1
project checkpoint=run input=pictures starts=0 | starts=0 must be at least 1
report run=run num=0 | num=0 must be at least 1
interpolate checkpoint=run output=walk.avi | output=walk.avi: expected a folder; interpolate and directions also write
sample checkpoint=run output=samples.png | output=samples.png: expected a folder; interpolate and directions also write
sample checkpoint=run num = 3 | num: settings are given as KEY=VALUE, without spaces before and after the '='
train TINY minutes= 3 | minutes: settings are given as KEY=VALUE, without spaces
train experiment=photos minute=3 data.root=gone | there is no key 'minute'; did you mean 'minutes'?
train experiment=photos minutes=1h data.root=gone | minutes=1h: expected a number
train experiment=photos minutes=1h data.root=gone resume=auto | minutes=1h: expected a number
train experiment=photos minutes=-1 data.root=gone resume=auto | minutes=-1.0 must be greater than 0
train experiment=photos data.root=gone --config-dir=mine | --config-dir with experiment=photos: run `lit-gans plan` once
train TINY hydra.run.dir=a trainer.default_root_dir=b | both set the run folder: leave out one of them
sample -m checkpoint=run seed=0,1 | -m sweeps trainings only (lit-gans train -m)
sample checkpoint=run whole=true | whole=True: a DCGAN generates images from noise; leave out whole=
train experiment=photos data.rot=gone | there is no key 'data.rot'; did you mean 'data.root'?
train experiment=photos --data.root gone | unrecognized arguments: --data.root: settings are given as key=value
interpolate checkpoint=run output=text.txt/walk.gif | text.txt: the folder cannot be created
average | run is required, for example: lit-gans average run=outputs/
average run=run | width is required, for example: lit-gans average run=outputs/
average run=run width=0.3 | width=0.3 must be greater than 0 and less than 0.2887.
average run=nothing width=0.1 | run=nothing: there is no such folder; use the folder of a run trained with callbacks=
average run=run width=0.1 | run=run: it has no snapshots in averages/; use the folder of a run trained with callbacks=
directions checkpoint=run num=9 | num=9 must be at least 1 and at most latent_dim=8
project checkpoint=run input=nothing | nothing: there is no such folder
scale checkpoint=run input=nothing | run: expected an autoencoder (model=autoencoder_kl), not a DCGAN.
demo | checkpoint is required, for example: lit-gans demo checkpoint=zoo/dcgan_avatars
scale checkpoint=run | input is required, for example: lit-gans scale checkpoint=outputs/
report run=empty | run=empty: there is no config.yaml in it
export checkpoint=run "license=CC BY-SA 4.0" | license=CC BY-SA 4.0: use an identifier of the Hugging Face Hub
export checkpoint=run format=onnx license=MIT | license=MIT: use an identifier of the Hugging Face Hub in lower case
export checkpoint=run output=gen.onnx | output=gen.onnx: format=safetensors writes a folder; for an ONNX file, add form
sample checkpoint=run weights=emma | weights=emma: expected one of 'ema', 'raw' or null.
sample checkpoint=run num=many | num=many: expected a whole number or null.
sample checkpoint=run value_range=3 | value_range=3: expected [a number, a number] or null.
export checkpoint=run format=torch | format=torch: expected one of 'safetensors', 'onnx', 'diffusers'.
describe model=dcgan data.image_size=41 | image_size=41: the dcgan networks double a map
evaluate checkpoint=run metrics.num_samples=9 | 'metrics.num_samples'; it is a key of an option: also set metrics=NAME
evaluate checkpoint=run metrics=digits output=empty | output=empty is a folder
evaluate checkpoint=run metrics=digits image_size=64 | image_size= and value_range= apply to images in folders only
bench gans=[dcgna] | did you mean 'dcgan'?
bench output=speed.md | output=speed.md: expected a JSON file; the table is written beside it
compare list.json nowhere.json | list.json is not an evaluation
compare a=list.json b=list.json | compare takes paths without keys: lit-gans compare A.json B.json.
pack data=digits | Digits generates its images, so there is nothing to pack.
pack data=folder data.root=pictures output=a.zip | output=a.zip: the packed images are in data.cache: add format=styl
pack data=folder data.root=pictures format=stylegan output=a.tar | whose name must end with .zip
pack data=folder data.root=pictures format=stylegan output=empty | whose name must end with .zip
pack data=folder data.root=cut.zip | cut.zip: the zip archive is cut off or damaged: copy or download it again.
train TINY data=folder data.root=cut.zip | cut.zip: the zip archive is cut off or damaged
train TINY data=folder data.root=s3://bucket/shards | s3://bucket/shards is a URL: folders and archives are read from
evaluate fake=cut.zip real=cut.zip metrics=digits | cut.zip: the zip archive is cut off or damaged
project checkpoint=run input=cut.zip | cut.zip: the zip archive is cut off or damaged
plan | data.root is required: set it to the folder of the images
plan data.root=empty minutes=-1 | minutes=-1.0 must be greater than 0
plan data.root=empty | empty contains no images
plan data.root=empty output=plan.yaml | an experiment is a YAML file in a folder named experiment
plan data.root=empty data=digits | a plan is for data=folder, not data=digits
fit | the following arguments are required
"""
LINES = [tuple(line.split(" | ", 1)) for line in TABLE.strip().splitlines()]


@pytest.fixture(scope="module")
def wrong_files(tmp_path_factory):
    """A folder with a run, and files of every wrong kind."""
    folder = tmp_path_factory.mktemp("wrong")
    assert cli.run(["train", *TINY, "trainer.max_steps=1", f"hydra.run.dir={folder / 'run'}"]) == 0
    (folder / "text.txt").write_text("no checkpoint, and no folder")
    (folder / "list.json").write_text(json.dumps([1]))
    (folder / "empty").mkdir()
    (folder / "pictures").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "pictures/a.png")
    (folder / "cut.zip").write_bytes(b"PK\3\4" + bytes(100))
    (folder / "experiment").mkdir()
    (folder / "experiment/swept.yaml").write_text("# @package _global_\nhydra: {mode: MULTIRUN}\n")
    return folder


@pytest.fixture
def refused_line(command, wrong_files, monkeypatch):
    """Runs a command line that must be refused in the folder of wrong files, and returns its sentence."""

    def worked(*arguments, **settings):
        raise AssertionError("device work began")

    def contents():
        return {path: path.stat().st_mtime_ns for path in wrong_files.rglob("*") if path.is_file()}

    monkeypatch.setattr(AdversarialModule, "training_step", worked)
    monkeypatch.setattr(AdversarialModule, "decode", worked)
    monkeypatch.chdir(wrong_files)

    def run(line):
        before = contents()
        code, out, err = command(*shlex.split(line))
        assert code == 2, err
        assert "Traceback" not in err
        *notices, sentence = err.strip().splitlines()
        assert sentence.startswith("lit-gans: "), err
        # which checkpoint was found and its iteration
        assert all(notice.startswith(("checkpoint  ", "iteration   ")) for notice in notices), err
        assert not out.strip()
        assert contents() == before
        return sentence

    return run


def test_the_table_covers_every_command():
    assert {line.split()[0] for line, _ in LINES} >= {*names()}


@pytest.mark.runs
@pytest.mark.parametrize(("line", "sentence"), LINES, ids=[line for line, _ in LINES])
def test_a_wrong_line_says_what_is_wrong(refused_line, line, sentence):
    assert sentence in refused_line(line.replace("TINY", shlex.join(TINY)).replace("LONG", "x" * 300))


def test_a_traceback_is_printed_on_request(command, monkeypatch):
    monkeypatch.setenv("LIT_GANS_DEBUG", "1")
    code, _, err = command("describe", "model=dcgan", "data.image_size=41")
    assert code == 2
    assert err.startswith("Traceback")
    assert "RefusedInput" in err
    assert err.strip().splitlines()[-1].startswith("lit-gans: image_size=41: the dcgan networks")
    monkeypatch.setenv("LIT_GANS_DEBUG", "0")
    assert "Traceback" not in command("describe", "model=dcgan", "data.image_size=41")[2]


def test_a_folder_of_a_refused_run_disappears_with_its_parents(refused):
    refused("train", *TINY, "model.n_critic=0")
    assert not Path("outputs").exists()
    Path("outputs/dcgan_digits/version_7").mkdir(parents=True)
    refused("train", *TINY, "model.n_critic=0")
    assert [path.name for path in Path("outputs/dcgan_digits").iterdir()] == ["version_7"], "others stay"
