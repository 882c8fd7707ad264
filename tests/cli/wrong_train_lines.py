"""Wrong command lines that compose a training, and what each must say; see `wrong_lines.py`."""

# after `lit-gans train` and the overrides of a tiny run
TRAIN = """
experiment=dcgan_digit | experiment=dcgan_digit: there is no such experiment; did you mean 'dcgan_digits'?
run=outputs | run: there is no such key; resume=PATH continues a run
model=dcgam | model=dcgam: there is no such model; did you mean 'dcgan'?
data=nothing | data=nothing: there is no such data; valid names: celeba, cifar10
metrics=digit | did you mean 'digits'?
strategy=zero | strategy=zero: there is no such strategy; valid names: auto, ddp, deepspeed, fsdp.
precision=fp17 | did you mean 'fp16'?
callbacks=nothing | valid names: default, none.
logger=cvs | did you mean 'csv'?
optimizer@model.generator_optimizer=rmsprob | did you mean 'rmsprop'?
schedule@model.generator_optimizer.schedule=cosinus | there is no such schedule
optimizer@model.generator_optimizer=adam | optimizer: there is no such group; did you mean 'optimizer'?
optimizer@model.gen=adam | optimizer@model.gen: there is no such key
model= | model=: there is no such model
trainer=3 | trainer=3 is not valid: expected the name of an option, trainer=NAME; valid names: default.
precision=16 | precision=16 is not valid: expected the name of an option, precision=NAME; did you mean 'fp16'?
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
model.generator_optimizer=3 | 3: expected the name of an optimizer of torch.optim
model.generator_optimizer.betas=[0.5] | betas=(0.5,) must be
model.generator_optimizer.betas=0.5 | betas=0.5 must be finite, and like torch's (0.9, 0.999)
model.diffaugment=[colors] | model.diffaugment=['colors'] is not valid: expected one of
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
model.generator_optimizer.lr=0 | lr=0
model.generator_optimizer.lr=nan | lr=nan must be
model.clip_gradients=inf | clip_gradients=inf must be greater than 0 and finite, or null for none.
model.r1_gamma=nan | r1_gamma=nan must be at least 0
callbacks.ema.decay=2 | callbacks.ema: decay=2.0 must lie in [0, 1)
callbacks.samples.frames_per_second=nan | frames_per_second=nan must be greater than 0 and finite.
callbacks.watch.min_diversity=nan | callbacks.watch: min_diversity=nan must lie in [0, 1).
callbacks.checkpoint.every_n_train_steps=0 | every_n_train_steps=0 must be at least 1
data.channels=2 | channels=2 must be 1 or 3
data.image_size=40 | lit-gans: data.image_size=40: the dcgan networks support 16, 32, 48
data.batch_size=5001 | the data has 5000 images, one step needs 5001
trainer.devices=0 | trainer.devices=0 must be auto, at least 1
trainer.devices=1000 | cores: use at most trainer.devices=
trainer.min_steps=9 trainer.max_steps=4 | trainer.min_steps=9 must be at most trainer.max_steps=4, where the training
trainer.min_epochs=2 trainer.max_epochs=1 | trainer.min_epochs=2 must be at most trainer.max_epochs=1
callbacks.samples.num=100000000 | callbacks.samples: num=100000000 must be at most 10000.
callbacks.throughput.time_to={fid_digit:9} metrics=digits | did you mean 'metric/fid_digits'?
callbacks.throughput.time_to={fid_digits:9} | time_to.fid_digits: nothing measures it; choose what is measured with me
callbacks.throughput.time_to={fid_digits:nan} | callbacks.throughput: time_to.fid_digits=nan must be finite.
metrics=digits metrics.num_samples=100000000 | metrics: num_samples=100000000 must be at most 1000000.
model.latent_dim=1000000000000 | model: the networks need more memory than the
model.generator_width=1000000000 | GiB of this machine: choose smaller ones.
model.latent_dim=99999999999999999999 | latent_dim=99999999999999999999 must be at least -2**63 and less than 2**63.
data.num_workers=100000 | data: num_workers=100000 must be at most
trainer.limit_train_batches=2.5 | invalid value 2.5 for limit_train_batches
trainer.max_steps=0 | trainer.max_steps=0 must be at least 1
seed=4294967296 | seed=4294967296 must lie in [0, 4294967295].
precision=fp16 | precision=fp16 needs a CUDA device
trainer.accelerator=cuda | trainer.accelerator=auto uses what there is, otherwise the CPU.
trainer.accelerator=abc | invalid accelerator name
trainer.accelerator=tpu | trainer: a package is missing
trainer.gradient_clip_val=1 | has no effect on networks with optimizers of their own: use model.clip_gradients=1.
trainer.accumulate_grad_batches=2 | use model.accumulate_gradients=2.
trainer.num_nodes=2 | trainer.num_nodes=2: nothing says where the other nodes are
model.num_classes=7 | num_classes=7 and the data has 10 classes
metrics=modes | metrics=modes needs data whose modes are known
data.root=photos | data.root: there is no such key; data=folder data.root=FOLDER is a folder of images.
metrics.num_samples=9 | metrics is none: leave it out, or choose metrics=NAME.
metrics=module | metrics.extractor.module._target_ is required
metrics=module metrics.extractor.module._target_=nothing.Nothing | nothing.Nothing cannot be imported
metrics=module metrics.extractor.module._target_=torch.nn.Linear | in_features is required by Linear
+callbacks.mine._target_=torch.nn.Linear | torch.nn.Linear is not valid: expected a class derived from Callback.
model._target_=3 | model._target_=3 is not valid: expected the path of a class, package.module.Class.
model._target_=lit_gans.data.sources.digits.Digits | expected a class derived from AdversarialModule.
data._target_=lit_gans.models.dcgan.DCGAN | expected a class derived from LightningDataModule.
logger.csv.save_dir=text.txt/x | logger.csv.save_dir=text.txt/x: the folder cannot be created
trainer.callbacks=[1] | trainer.callbacks=[1] cannot be set: callbacks.NAME._target_=CLASS adds one
trainer.logger=false | trainer.logger=False cannot be set: use logger=NAME, or logger=none.
trainer.overfit_batches=2 | overfit_batches=2 cannot be set: it would change the order of images
trainer.log_every_n_steps=-1 | trainer.log_every_n_steps=-1 must be at least 1, or 0 for no log.
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
strategy=deepspeed trainer.strategy.stage=0.0 | trainer.strategy.stage=0.0 is not valid: expected one of 0, 1, 2, 3.
strategy=deepspeed trainer.strategy.config=nowhere.json | config=nowhere.json cannot be read as JSON
"""

# `lit-gans tune`
TUNE = """
tune model=dcgam | did you mean 'dcgan'?
tune modle=dcgan | modle: there is no such key; did you mean 'model'?
tune experiment=nowhere.yaml | experiment=nowhere.yaml: expected an existing YAML file in a folder named experiment.
tune data=folder | data.root is required
tune callbacks=nothing | valid names: default, none.
tune metrics=digit | did you mean 'digits'?
tune logger=cvs | did you mean 'csv'?
tune callbacks.ema.decai=3 | did you mean 'callbacks.ema.decay'?
tune minutes=nan | minutes=nan must be a number greater than 0.
tune trainer.max_steps=abc | trainer.max_steps='abc' is not valid: expected int.
tune model.n_critic=0 | n_critic=0 must be at least 1.
tune data.batch_size=100000 | data.batch_size=100000 must be at most 65536.
tune output=text.txt | output=text.txt: an experiment is a YAML file in a folder named experiment.
tune output=text.txt/experiment/a.yaml | output=text.txt/experiment: the folder cannot be created
tune resume=run | resume=run: the short trainings of tune begin from new networks; leave it out.
tune trainer.accelerator=cuda | trainer.accelerator=auto uses what there is, otherwise the CPU.
"""
