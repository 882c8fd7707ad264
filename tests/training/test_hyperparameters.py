"""The configuration of a run in its loggers."""

import sys
import types

import pytest
import yaml
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

from lit_gans.callbacks import RunConfig
from lit_gans.training.hyperparameters import log_hyperparameters, loggable
from tests.commands import TINY


def test_values_have_the_keys_of_the_command_line_and_their_types():
    config = {"seed": 3, "model": {"_target_": "DCGAN", "r1_gamma": 0.5, "compile": False, "betas": [0.0, 0.99]}}
    optimizer = {"class_path": "Optimizer", "init_args": {"lr": 1e-4}}
    assert loggable(config | {"init_from": None, "optimizer": optimizer, "many": [{"a": 1}, {"a": 2}]}) == {
        "seed": 3,
        "model._target_": "DCGAN",
        "model.r1_gamma": 0.5,
        "model.compile": False,
        "model.betas": "[0.0, 0.99]",
        "init_from": None,
        "optimizer": "Optimizer",
        "optimizer.lr": 1e-4,
        "many.0.a": 1,
        "many.1.a": 2,
    }


@pytest.mark.parametrize(
    "config",
    [
        {"data": {"token": "SECRET"}},
        {"logger": {"comet": {"api_key": "SECRET"}}},
        {"data": {"aws_secret_access_key": "SECRET"}},
        {"data": {"storage_options": {"client": {"anything": "SECRET"}}}},
        {"logger": {"mlflow": {"tracking_uri": "https://me:SECRET@host/path"}}},
        {"plugins": [{"Password": "SECRET"}]},
        {"data": {"password": 1234}},
        {"data": {"root": "https://host/x?sig=SECRET&x=1"}},
        {"plugins": {"env": ["A=1", "HF_TOKEN=SECRET"]}},
        {"plugins": {"args": ["--password", "SECRET", "--user", "me"]}},
        {"plugins": {"args": ["--api-key=SECRET"]}},
        {"plugins": {"command": "run --password SECRET --user me"}},
        {"logger": {"apiKey": "SECRET"}},
        {"logger": {"accessToken": "SECRET"}},
        {"logger": {"headers": {"Authorization": "Bearer SECRET"}}},
        {"logger": {"headers": {"X-Custom": "Bearer SECRET"}}},
        {"data": {"cookie": "SECRET"}},
        {"data": {"passphrase": "SECRET"}},
        {"data": {"db_pwd": "SECRET"}},
        {"data": {"connection_string": "SECRET"}},
    ],
)
def test_no_secret_is_logged(config):
    assert "SECRET" not in str(loggable(config))
    assert "1234" not in str(loggable(config))
    plain = {"data.root": "https://host/x", "model.args": "['--user', 'me']", "model.passes": 2, "model.author": "me"}
    plain |= {"model.note": "token mixing, key frames", "model.blocks": "['key', 'value']"}
    assert loggable(plain) == plain
    assert loggable({"model": {"num_tokens": 7, "token_dim": 8}}) == {"model.num_tokens": 7, "model.token_dim": 8}


def hparams_of(folder):
    """What TensorBoard reads."""
    events = EventAccumulator(str(folder)).Reload()
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    data = plugin_data_pb2.HParamsPluginData.FromString(content)
    values = data.session_start_info.hparams
    return {name: getattr(values[name], values[name].WhichOneof("kind")) for name in values}


@pytest.mark.runs
def test_a_run_has_its_configuration_in_tensorboard_and_a_resumed_run_too(train, tmp_path):
    arguments = [*TINY[:-1], "logger=tensorboard", "model.r1_gamma=0.25", "hydra.run.dir=run"]
    assert train(*arguments, "trainer.max_steps=1") == 0, train.err
    for seen in (
        hparams_of("run/tensorboard"),
        yaml.safe_load((tmp_path / "run/tensorboard/hparams.yaml").read_text()),
    ):
        assert (seen["model.r1_gamma"], seen["seed"], seen["data.batch_size"]) == (0.25, 0, 500)
        assert seen["model._target_"] == "lit_gans.models.dcgan.DCGAN"
    assert train(*arguments, "trainer.max_steps=2", "resume=auto") == 0, train.err


def test_a_training_from_python_has_the_arguments_of_module_and_data(tiny_gan, random_images, fit, tmp_path):
    logger = TensorBoardLogger(tmp_path, name="", version="tensorboard")
    fit(tiny_gan(latent_dim=5, seed=7), random_images(batch_size=4), max_steps=1, logger=logger, log_every_n_steps=1)
    seen = yaml.safe_load((tmp_path / "tensorboard/hparams.yaml").read_text())
    assert (seen["model.latent_dim"], seen["model.seed"], seen["model.generator_optimizer.lr"]) == (5, 7, 2e-4)
    assert (seen["data.batch_size"], seen["data.image_size"]) == (4, 16)
    assert seen["data._target_"] == "tests.tiny.RandomImages"


def test_a_resumed_mlflow_run_keeps_its_first_values(tiny_gan, caplog, monkeypatch):
    """MLflow raises for a value that changes."""
    monkeypatch.setitem(sys.modules, "mlflow", types.ModuleType("mlflow"))
    logged = {}
    run = types.SimpleNamespace(data=types.SimpleNamespace(params=logged))
    mlflow = MLFlowLogger.__new__(MLFlowLogger)
    mlflow._initialized, mlflow._run_id = True, "run"
    mlflow._mlflow_client = types.SimpleNamespace(get_run=lambda _: run)

    def log(params):
        assert not params.keys() & logged.keys()
        logged.update({name: str(value) for name, value in params.items()})

    mlflow.log_hyperparams = log
    for steps in (10, 20):
        callbacks = [RunConfig({"max_steps": steps, "seed": 0})]
        trainer = Trainer(accelerator="cpu", logger=mlflow, callbacks=callbacks, enable_checkpointing=False)
        with caplog.at_level("INFO"):
            log_hyperparameters(trainer, tiny_gan())
    assert logged == {"max_steps": "10", "seed": "0"}
    assert "MLflow keeps the first values of max_steps" in caplog.text
