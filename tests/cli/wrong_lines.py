"""Wrong command lines and what each must say: `arguments | part of the sentence`.

`rows` reads a table. The files that the lines name are made by `tests/cli/test_wrong_lines.py`.
"""

# after `lit-gans train` and the overrides of a tiny run
TRAIN = """
experiment=dcgan_digit | experiment=dcgan_digit: there is no such experiment; did you mean 'dcgan_digits'?
model=dcgam | model=dcgam: there is no such model; did you mean 'dcgan'?
data=nothing | data=nothing: there is no such data; valid names: celeba, cifar10
metrics=digit | did you mean 'digits'?
strategy=zero | strategy=zero: there is no such strategy; valid names: auto, ddp, deepspeed, fsdp.
precision=fp17 | did you mean 'fp16'?
callbacks=nothing | valid names: default, none.
logger=cvs | did you mean 'csv'?
optimizer@model.generator_optimizer=rmsprob | did you mean 'rmsprop'?
schedule@model.generator_optimizer.schedule=cosinus | there is no such schedule
optimiser@model.generator_optimizer=adam | optimiser: there is no such group; did you mean 'optimizer'?
optimizer@model.gen=adam | optimizer@model.gen: there is no such key
model= | model=: there is no such model
trainer=3 | the overrides cannot be composed: Config group override must be a string or a list
modle=dcgan | did you mean 'model'?
model.n_critc=3 | did you mean 'model.n_critic'?
callbacks.ema.decai=0.9 | callbacks.ema.decai: there is no such key; did you mean 'callbacks.ema.decay'?
trainer.max_stepz=1 | did you mean 'trainer.max_steps'?
+model.nothing=1 | model.nothing: DCGAN has no such argument
~model.nothing | ~model.nothing: there is no such key
hydra.nothing=1 | hydra.nothing: there is no such key
model.latent_dim=[ | cannot be read as key=value
seed=1,2 | seed=1,2 has several values: -m trains with each of them
model.n_critic=abc | model.n_critic='abc' is not valid: expected int.
model.n_critic=1.5 | model.n_critic=1.5 is not valid: expected int.
model.n_critic=null | model.n_critic=null is not valid: expected int.
model.channels_last=3 | model.channels_last=3 is not valid: expected bool.
model.network=vgg | model.network='vgg' is not valid: expected one of dcgan, resnet, mlp, r3gan.
model.generator_optimizer=3 | model.generator_optimizer=3 is not valid: expected optimizer@model.generator
model.generator_optimizer.betas=[0.5] | expected a list of 2 values, [A,B].
model.generator_optimizer.betas=0.5 | model.generator_optimizer.betas=0.5 is not valid: expected a list, [A,B].
model.diffaugment=[colours] | model.diffaugment=['colours'] is not valid: expected one of
model.r1_gamma=abc | expected float or a class with its arguments, {_target_: CLASS, NAME: VALUE}.
model.augmentation=3 | expected null or a class with its arguments, {_target_: CLASS, NAME: VALUE}.
model.generator_optimizer.schedule=abc | schedule='abc' is not valid: expected a class with its arguments, {_target_
callbacks.ema=3 | callbacks.ema=3 is not valid: expected callbacks.ema.NAME=VALUE
seed=abc | seed='abc' is not valid: expected int.
data.batch_size=nan | data.batch_size=nan is not valid: expected int.
trainer.benchmark=5 | trainer.benchmark=5 is not valid: expected bool or null.
trainer.max_time=abc | trainer: `Timer(duration='abc')` is not a valid duration.
trainer.profiler=abc | it can only be one of
model.n_critic=0 | n_critic=0 must be at least 1
model.generator_optimizer.learning_rate=0 | learning_rate=0.0 must be greater than 0
model.generator_optimizer.learning_rate=nan | learning_rate=nan must be greater than 0
model.clip_gradients=inf | clip_gradients=inf must be greater than 0 and finite, or null for none.
model.r1_gamma=nan | r1_gamma=nan must be at least 0
callbacks.ema.decay=2 | callbacks.ema: decay=2.0 must lie in [0, 1)
callbacks.samples.frames_per_second=nan | frames_per_second=nan must be greater than 0 and finite.
callbacks.watch.min_diversity=nan | callbacks.watch: min_diversity=nan must lie in [0, 1).
callbacks.checkpoint.every_n_train_steps=0 | every_n_train_steps=0 must be at least 1
data.channels=2 | channels=2 must be 1 or 3
data.image_size=40 | image_size=40: the dcgan networks support 16, 32, 48
data.batch_size=5001 | the data has 5000 images, one step needs 5001
trainer.devices=0 | trainer.devices=0 must be auto, at least 1
trainer.devices=1000 | trainer.devices=1000: on a CPU, devices are processes
trainer.limit_train_batches=2.5 | invalid value 2.5 for limit_train_batches
trainer.max_steps=0 | trainer.max_steps=0 must be at least 1
seed=4294967296 | seed=4294967296 must lie in [0, 4294967295].
precision=fp16 | precision=fp16 needs a CUDA device
trainer.accelerator=cuda | can not run on your system
trainer.accelerator=abc | invalid accelerator name
trainer.accelerator=tpu | trainer: a package is missing
trainer.gradient_clip_val=1 | has no effect on networks with optimizers of their own: use model.clip_gradients=1.
trainer.accumulate_grad_batches=2 | use model.accumulate_gradients=2.
trainer.num_nodes=2 | trainer.num_nodes=2: nothing says where the other nodes are
model.num_classes=7 | num_classes=7 and the data has 10 classes
metrics=modes | metrics=modes needs data whose modes are known
metrics=module | metrics.extractor.module._target_ is required
metrics=module metrics.extractor.module._target_=nothing.Nothing | nothing.Nothing cannot be imported
metrics=module metrics.extractor.module._target_=torch.nn.Linear | in_features is required by Linear
init_from=run resume=run | resume=run continues a run and init_from=run begins a new one: leave one of them out.
resume=nowhere.ckpt | resume=nowhere.ckpt: there is no such checkpoint
resume=null | resume=null is not valid: expected none, auto, or the path of a checkpoint or of a run.
resume=text.txt | text.txt cannot be read as a checkpoint
resume=torn.ckpt | torn.ckpt cannot be read as a checkpoint
resume=empty | empty is n
init_from=nowhere.ckpt | there is no checkpoint at nowhere.ckpt
init_from=text.txt | text.txt cannot be read as a checkpoint
init_from=foreign.ckpt | foreign.ckpt is not a Lightning checkpoint
hydra.run.dir=text.txt/run | hydra.run.dir=text.txt/run: the folder cannot be created
trainer.default_root_dir=text.txt | trainer.default_root_dir=text.txt: the folder cannot be created
hydra.run.dir=/proc/run | /proc does not permit it
hydra.sweep.dir=text.txt/run -m seed=1,2 | hydra.sweep.dir=text.txt/run: the folder cannot be created
--config-dir nowhere | --config-dir: there is no folder 'nowhere'
--config-name nothing | Cannot find primary config 'nothing'
--cfg nothing | --cfg nothing: expected one of job, hydra, all.
hydra.searchpath=[file://nowhere] | hydra.searchpath: there is no folder 'nowhere'
strategy=ddp trainer.devices=2 trainer.strategy.timeout=nan | timeout=nan must be greater than 0 seconds
strategy=ddp trainer.devices=2 trainer.strategy.bucket_cap_mb=1e30 | bucket_cap_mb=1e+30 must be at most 1048576, a TiB.
strategy=ddp trainer.devices=2 trainer.strategy.bucket_cap_mb=nan | bucket_cap_mb=nan must be greater than 0 and finite.
strategy=deepspeed trainer.strategy.stage=9 | trainer.strategy.stage=9 is not valid: expected one of 0, 1, 2, 3.
strategy=deepspeed trainer.strategy.config=nowhere.json | config=nowhere.json cannot be read as JSON
"""

# data sources and packing
DATA = """
train data=folder | data.root is required
train data=folder data.root=nowhere | lit-gans: data.root=nowhere: there is no such folder
train data=folder data.root=empty | data.root=empty contains no images
train data=folder data.root=photos data.crop=abc | data.crop='abc' is not valid: expected one of centre, none or int.
train data=folder data.root=photos data.cache=text.txt/x | choose another data.cache.
train data=imagenet data.root=nowhere | data.root=nowhere: there is no folder train in it
train data=lsun data.root=nowhere | data.root=nowhere: LSUN cannot be read there
train data=ring model=dcgan | image_size=1: the dcgan networks support
train data=ring model=gan metrics=digits | points have no FID: use metrics=modes
train data=digits model=pix2pix metrics=none | pix2pix needs pairs
pack | data.root is required
pack data.root=nowhere | lit-gans: data.root=nowhere: there is no such folder; give the folder of the images.
pack data.root=text.txt | data.root=text.txt: there is no such folder
pack data.root=empty | data.root=empty contains no images
pack data=folde | did you mean 'folder'?
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
interpolate checkpoint=run output=text.txt/x | output=text.txt/x: the folder cannot be created
compare | compare takes two files of lit-gans evaluate, not 0
compare list.json nowhere.json | list.json is not an evaluation
compare text.txt list.json | text.txt is not an evaluation
compare empty empty | empty: there is no such file
describe model=sngam | did you mean 'sngan'?
describe experiment=dcgan_digits | experiment: there is no such key; valid names: data, model, seed.
describe model=dcgan data.image_size=41 | image_size=41: the dcgan networks support
describe model=dcgan model.latent_dim=-1 | latent_dim=-1 must be at least 1
evaluate checkpoint=nowhere metrics=digits | there is no checkpoint at nowhere
evaluate checkpoint=run fake=photos metrics=digits | checkpoint=PATH or fake=FOLDER, one of them
evaluate checkpoint=run metrics=digits output=empty | output=empty is a folder: give the path of a file in it.
evaluate checkpoint=run metrics=digits output=text.txt/x.json | the folder cannot be created
bench stp | did you mean 'bench step'?
bench step preset=tiny | preset='tiny' is not valid: expected one of full, smoke.
bench step steps=0 | steps=0 must be at least 1.
bench step image_size=41 | image_size=41: the dcgan networks support
bench step output=text.txt/x.json | output=text.txt: the folder cannot be created
bench step output=empty | output=empty is a folder
bench metrics num=1 | num=1 must be at least 2
bench metrics batch_size=0 | batch_size=0 must be at least 1
bench data placement=nowhere | expected one of auto, device, memory, disk.
train callbacks.ema.half_life={} | callbacks.ema.half_life={} is not valid: expected float or null
train model.augmentation={} | model.augmentation={} is not valid: expected null or a class
bench soak minuts=1 | minuts: there is no such key; did you mean 'minutes'?
bench growth steps=50 | steps=50 must be at least 100, five for each evaluation.
bench host steps=0 | steps=0 must be at least 1
bench peer gans=[dcgan] | gans=['dcgan']: choose from sngan, wgan_gp.
bench strategies gans=[vgg] | gans=['vgg']: there are
bench strategies shapes=[vqgan] | shapes=['vqgan']: there are
bench strategies gans=dcgan | gans='dcgan' is not valid: expected a list, [A,B].
bench study parts=[scalin] | there is no part 'scalin' of the study; did you mean 'scaling'?
bench study gans=[dcgna] | gans: there is no GAN 'dcgna'; did you mean 'dcgan'?
bench study sizes={step:3} | sizes.step: there is no such size; did you mean 'steps'?
bench study sizes={batch_sizes:4} | sizes.batch_sizes=4 is not valid: expected a list of numbers, at least 1 each.
bench gpu gans=[dcgam] device=cpu | gans: there is no 'dcgam'; did you mean 'dcgan'?
bench gpu minutes=0 device=cpu | minutes=0.0 must be greater than 0
bench gpu modes=[bf61] device=cpu | modes: there is no 'bf61'; did you mean 'bf16'?
bench startup rounds=1.5 | rounds=1.5 is not valid: expected int or null.
validate | use lit-gans evaluate checkpoint=PATH
predict | use lit-gans sample checkpoint=PATH
smaple | did you mean 'sample'?
fit | --data and --model must be given: lit-gans fit --model NAME --data NAME, or -c FILE.yaml.
fit --model DCGAM --data Digits | --model=DCGAM: there is no such class; did you mean 'DCGAN'?
fit --model DCGAN --data Digit | --data=Digit: there is no such class; did you mean 'Digits'?
fit --model DCGAN --data Digits --model.n_critic abc | --model.n_critic=abc is not valid: expected int.
fit --model DCGAN --data Digits --model.n_critic 0 | n_critic=0 must be at least 1.
fit --model DCGAN --data Digits --model.n_critc 1 | --model.n_critc: DCGAN has no such argument
fit --model DCGAN --data Digits --model.image_size 32 | --model.image_size: the model takes it from the data
fit --model DCGAN --data Digits --trainer.maxsteps=1 | --trainer.maxsteps=1: there is no such option
fit -c nowhere.yaml | nowhere.yaml: there is no such file
fit -c bad.yaml | -c: the file is not valid YAML
"""

# what people type
TYPED = """
train --max_steps 10 | --max_steps: settings are given as key=value; did you mean trainer.max_steps=10?
train --trainer.max_steps=10 | did you mean trainer.max_steps=10?
train --lr=0.1 | did you mean model.generator_optimizer.learning_rate=0.1 or model.discriminator_optimizer
train lr=0.1 | lr: there is no such key; did you mean 'model.generator_optimizer.learning_rate' or 'model.d
train model.lr=0.1 | did you mean 'model.generator_optimizer.learning_rate' or 'model.discriminator_opti
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
bench step smoke | did you mean preset=smoke?
"""


def rows(table: str) -> list[tuple[str, str]]:
    """Returns the arguments and the sentence of each line of a table."""
    return [tuple(line.split(" | ", 1)) for line in table.strip().splitlines()]
