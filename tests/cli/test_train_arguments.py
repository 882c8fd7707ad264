"""Arguments with which a stopped job of a sweep is started again."""

from lit_gans.cli.train_arguments import arguments_of_job


def test_a_stopped_job_is_started_again_with_what_was_typed():
    typed = ["experiment=mine/experiment/fast.yaml", "hydra.searchpath=[file://other]", "seed=0"]
    job = ["experiment=fast", "seed=0"]
    assert arguments_of_job(typed, job) == typed
    assert arguments_of_job([*typed[:2], "seed=0,1", "-m", "hydra.sweep.dir=all"], job) == typed
    sweeper = ["hydra/sweeper=optuna", "hydra.sweeper.params.seed=choice(0,1)", "hydra/launcher=joblib"]
    assert arguments_of_job(["-m", *sweeper, "model=gan"], ["model=gan", "seed=1"]) == ["model=gan", "seed=1"]


def test_what_hydra_is_told_beside_a_typed_class_is_no_argument_of_a_job():
    typed = ["-m", "model.generator_optimizer={schedule: {_target_: lit_gans.CosineSchedule}}", "seed=0,1"]
    job = ["++model.generator_optimizer.schedule=null", typed[1], "seed=1"]
    assert arguments_of_job(typed, job) == [typed[1], "seed=1"]
