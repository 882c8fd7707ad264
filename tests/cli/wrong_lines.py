"""Wrong command lines and what each must say: `arguments | part of the sentence`.

`rows` reads a table; those that compose a training are in `wrong_train_lines.py`. The files that the
lines name are made by `tests/cli/test_wrong_lines.py`.
"""

# data sources and packing
DATA = """
train data=folder | data.root is required
train data=folder data.root=nowhere | lit-gans: data.root=nowhere: there is no such folder
train data=folder data.root=empty | data.root=empty contains no images
train data=folder data.root=photos data.crop=abc | data.crop='abc' is not valid: expected one of center, none or int.
train data=folder data.root=photos data.cache=text.txt/x | choose another data.cache.
train data=imagenet data.root=nowhere | data.root=nowhere: there is no folder train in it
train data=lsun data.root=nowhere | data.root=nowhere: LSUN cannot be read there
train data=ring model=dcgan | 128, 256 pixels; points need network=mlp.
train data=ring model=gan metrics=digits | points have no FID: use metrics=modes
train data=ring model=gan data.num_points=100000000000 | num_points=100000000000 must be at most 100000000.
train data=digits model=pix2pix metrics=none | pix2pix needs pairs
pack | data.root is required
pack data.root=nowhere | lit-gans: data.root=nowhere: there is no such folder; give the folder of the images.
pack data.root=text.txt | data.root=text.txt: there is no such folder
pack data.root=empty | data.root=empty contains no images
pack data=folde | did you mean 'folder'?
pack data=null | data=null is not valid: expected the name of an option, data=NAME.
pack data=streaming data.root=empty | Streaming streams images that are packed, there is nothing to pack.
pack data=cifar10 data.root=text.txt | data.root=text.txt is a file: give the folder that holds cifar-10-python.tar.gz.
pack data=digits | Digits generates its images, there is nothing to pack.
pack data.root=photos data.image_size=0 | image_size=0 must be at least 1.
pack data.root=photos stream=photos | stream=photos is not empty: a stream needs a new or empty folder.
pack data.root=photos stream=text.txt/x | stream=text.txt/x: the folder cannot be created
pack data.root=photos data.cache=text.txt/x | choose another data.cache.
pack data.root=photos data.rot=1 | did you mean 'data.root'?
"""

# all other commands
OTHERS = """
sample | checkpoint is required
sample checkpoint=null | checkpoint=null is not valid: expected str.
sample checkpoint=nowhere | there is no checkpoint at nowhere: give the path of a .ckpt file, or the folder of a run.
sample checkpoint=empty | empty is neither the folder of a run nor a sharded checkpoint
sample checkpoint=photos | photos is neither the folder of a run nor a sharded checkpoint
sample checkpoint=text.txt | text.txt cannot be read as a checkpoint
sample checkpoint=list.json | list.json cannot be read as a checkpoint
sample checkpoint=foreign.ckpt | foreign.ckpt is not a Lightning checkpoint
sample checkpoint=torn.ckpt | torn.ckpt cannot be read as a checkpoint
sample checkpoint=x nun=3 | did you mean 'num'?
sample checkpoint=x num=0 | num=0 must be at least 1
sample checkpoint=x num=nan | num=nan is not valid: expected int.
sample checkpoint=x num=99999999999 | 99999999999 images are too many at once: at most 1000000; use several seeds.
sample checkpoint=x seed=99999999999999999999 | seed=99999999999999999999 must be at least -2**63 and less than 2**63.
sample checkpoint=x weights=average | weights='average' is not valid: expected one of ema, raw or null.
sample checkpoint=run label=3 | label=3: the model was trained without classes
sample checkpoint=run input=photos | a DCGAN generates images from noise; leave it out.
sample checkpoint=run output=text.txt | output=text.txt: the folder cannot be created
sample checkpoint=run output=/proc/x | /proc does not permit it
export checkpoint=nowhere | there is no checkpoint at nowhere
export checkpoint=run format=torch | format='torch' is not valid: expected one of safetensors, onnx.
export checkpoint=run output=text.txt | output=text.txt: the folder cannot be created
export checkpoint=run format=onnx output=empty | output=empty is a folder: give the path of a file in it.
export checkpoint=run weights=both | expected one of ema, raw or null.
interpolate checkpoint=x steps=1 | steps=1 must be at least 2
interpolate checkpoint=x num=-1 | num=-1 must be at least 1
interpolate checkpoint=x steps=2000000 | images are too many at once
interpolate checkpoint=run output=text.txt/x | output=text.txt/x: the folder cannot be created
compare | compare takes two files of lit-gans evaluate, not 0
compare list.json nowhere.json | list.json is not an evaluation
compare text.txt list.json | text.txt is not an evaluation
compare nowhere.json list.json | nowhere.json: there is no such file
compare empty empty | empty is a folder: give the JSON file that lit-gans evaluate wrote.
describe model=sngam | did you mean 'sngan'?
describe experiment=dcgan_digits | experiment: there is no such key; valid names: data, model, seed.
describe model=dcgan data.image_size=41 | image_size=41: the dcgan networks support
describe model=dcgan model.latent_dim=-1 | latent_dim=-1 must be at least 1
describe data=digit | data: nothing can be chosen there; set data.image_size or data.channels.
describe model=dcgan model.latent_dim=1000000000000000000 | model: the networks need more memory
describe model=lsgan | One of your own is found by LIT_GANS_IMPORT=MODULE.
evaluate checkpoint=x device=gpu | device=gpu cannot be used: Expected one of cpu, cuda
evaluate checkpoint=x device=cuda:x | device=cuda:x cannot be used: Invalid device string: 'cuda:x'; give cpu,
evaluate fake=photos real=photos metrics=digits image_size=0 | image_size=0 must be at least 1
evaluate fake=photos real=photos metrics=digits image_size=100000000 | image_size=100000000 must be at most 16384.
evaluate fake=text.txt real=photos metrics=digits | text.txt: there is no such folder
evaluate fake=photos real=photos | metrics=digits, metrics=efficientnet_lite0 for other images.
evaluate checkpoint=run metrics=digits required=[kdi] | required: there is no score 'kdi'; valid names
evaluate checkpoint=run metrics=digits data=digits data.image_size=32 | differs from the checkpoint's model
evaluate checkpoint=nowhere metrics=digits | there is no checkpoint at nowhere
evaluate checkpoint=run fake=photos metrics=digits | checkpoint=PATH or fake=FOLDER, one of them
evaluate checkpoint=run score@metrics.scores.kid=kid | nothing is chosen there; choose metrics=NAME too
evaluate checkpoint=run metrics=digits output=empty | output=empty is a folder: give the path of a file in it.
evaluate checkpoint=run metrics=digits output=text.txt/x.json | the folder cannot be created
bench gans=[dcgam] | gans: there is no 'dcgam'; did you mean 'dcgan'?
bench modes=[bf61] | modes: there is no 'bf61'; did you mean 'bf16'?
bench strategies=[dpd] | strategies: there is no 'dpd'; did you mean 'ddp'?
bench batch_sizes=[1] | batch_sizes=[1] must be at least 2 each.
bench minutes=0 | minutes=0.0 must be greater than 0
bench gans=dcgan | gans='dcgan' is not valid: expected a list, [A,B].
bench output=empty | output=empty is a folder
train callbacks.ema.half_life={} | callbacks.ema.half_life={} is not valid: expected float or null
train model.augmentation={} | model.augmentation={} is not valid: expected null or a class
validate | did you mean 'evaluate'?
smaple | did you mean 'sample'?
fit | --data and --model must be given: lit-gans fit --model NAME --data NAME, or -c FILE.yaml.
fit --model DCGAM --data Digits | --model=DCGAM: there is no such class; did you mean 'DCGAN'?
fit --model DCGAN --data Digit | --data=Digit: there is no such class; did you mean 'Digits'?
fit --model DCGAN --data Digits --model.n_critic abc | --model.n_critic=abc is not valid: expected int.
fit --model DCGAN --data Digits --model.n_critic 0 | n_critic=0 must be at least 1.
fit --model DCGAN --data Digits --model.n_critc 1 | --model.n_critc: DCGAN has no such argument
fit --model DCGAN --data Digits --model.image_size 32 | --model.image_size: the model takes it from the data
fit --model DCGAN --data Digits --trainer.maxsteps=1 | --trainer.maxsteps=1: there is no such option
fit --model DCGAN --data Digits --trainer.gradient_clip_val 1 | own: use --model.clip_gradients=1
fit --model DCGAN --data Digits --trainer.default_root_dir text.txt | text.txt is not a folder
fit --model DCGAN --data Digits --ckpt_path text.txt | text.txt cannot be read as a checkpoint
fit --model DCGAN --data Digits --trainer.precision fp17 | --trainer.precision=fp17 is not valid: expected int or one of
fit --model DCGAN --data Digits --trainer.callbacks Sample | there is no such class; did you mean 'Samples'?
fit --model DCGAN --data Digits --model.generator_optimizer Adan | Adan: torch.optim has no such optimizer; did you mean
fit --model DCGAN --data Folder | --data.root must be given
fit -c list.json | -c: the file holds no settings, NAME: VALUE; give run.yaml of a run.
fit -c empty | empty is not a file: give a YAML file, such as run.yaml of a run.
fit -c unknown.yaml | modle: there is no such setting; did you mean 'model'?
fit -c nowhere.yaml | nowhere.yaml: there is no such file
fit -c bad.yaml | -c: the file is not valid YAML
fit -c large.yaml | -c: large.yaml has 4398046511104 bytes: expected at most 1048576; give run.yaml of a run.
"""

# what people type
TYPED = """
train --max_steps 10 | --max_steps: settings are given as key=value; did you mean trainer.max_steps=10?
train --trainer.max_steps=10 | did you mean trainer.max_steps=10?
train --lr=0.1 | did you mean model.generator_optimizer.lr=0.1 or model.discriminator_optimizer
train lr=0.1 | lr: there is no such key; did you mean 'model.generator_optimizer.lr' or 'model.d
train model.lr=0.1 | did you mean 'model.generator_optimizer.lr' or 'model.discriminator_opti
train batch_size=8 | did you mean 'data.batch_size' or 'metrics.batch_size'?
train epochs=8 | did you mean 'trainer.max_epochs'?
train steps=8 | did you mean 'trainer.max_steps'?
train gpus=8 | did you mean 'trainer.devices'?
train optimizer=sgd | choose optimizer@model.generator_optimizer=NAME or optimizer@model.discr
train dcgan | 'dcgan' has no key: did you mean model=dcgan?
train dcgan_digits | 'dcgan_digits' has no key: did you mean experiment=dcgan_digits?
train run/checkpoints/last.ckpt | did you mean resume=run/checkpoints/last.ckpt?
sample run/checkpoints/last.ckpt | did you mean checkpoint=run/checkpoints/last.ckpt?
sample --checkpoint run | did you mean checkpoint=run?
describe dcgan | did you mean model=dcgan?
describe image_size=64 | did you mean 'data.image_size'?
pack photos | did you mean data.root=photos?
pack folder | did you mean data=folder?
tune --minutes 3 | --minutes: settings are given as key=value; did you mean minutes=VALUE?
tune --max_steps=3 | did you mean trainer.max_steps=3?
tune minutes | did you mean minutes=VALUE?
tune -m seed=1,2 | -m: tune measures one training, and has no options
"""


def rows(table: str) -> list[tuple[str, str]]:
    """Returns the arguments and the sentence of each line of a table."""
    return [tuple(line.split(" | ", 1)) for line in table.strip().splitlines()]
