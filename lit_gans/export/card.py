"""Model cards: README files in the format of the Hugging Face Hub, with scores, protocols, samples and licenses.

The header of a card is YAML, as https://huggingface.co/docs/hub/model-cards describes it. Cards contain no paths.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from lightning.pytorch import LightningDataModule
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from lit_gans.checkpoints.diffusers import WEIGHTS as DIFFUSERS_WEIGHTS
from lit_gans.checkpoints.exported import CONFIG, HUB, RECORD, SAMPLES, TRAINING, WEIGHTS
from lit_gans.checkpoints.format import EMA_KEY, FORMAT_KEY, class_path, measurements_of, split
from lit_gans.checkpoints.locate import ZOO
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.config.load import class_of, config_of
from lit_gans.config.registry import classes, gans
from lit_gans.config.signatures import schema
from lit_gans.models.cyclegan import CycleGAN
from lit_gans.models.pix2pix import Pix2Pix
from lit_gans.training.sampling import Weights
from lit_gans.training.translator import Translator

# a quoted text or an argument that contains a separator of paths, other than between two digits as in 1/2
_SEPARATOR = r"(?:[/\\](?!\d)|(?<!\d)[/\\])"
_PATH = re.compile(
    rf"""(['"])(?:(?!\1).)*{_SEPARATOR}(?:(?!\1).)*\1|(?=[^,;()='"]*{_SEPARATOR})[^,;()='"\s][^,;()='"]*"""
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")  # name of a dataset on the Hub
UNKNOWN = "other"  # value of `license` on the Hub for all licenses without an identifier
# further identifiers of the Hub; all others are identifiers of SPDX in lower case
_HUB_LICENSES = (
    *("other", "unknown", "bsd", "cc", "gpl", "lgpl", "gfdl", "odbl", "odc-by", "pddl", "lgpl-lr", "etalab-2.0"),
    *("openrail", "openrail++", "creativeml-openrail-m", "bigscience-openrail-m", "bigcode-openrail-m"),
    *("bigscience-bloom-rail-1.0", "apple-ascl", "apple-amlr", "deepfloyd-if-license", "intel-research", "open-mdw"),
    *("fair-noncommercial-research-license", "h-research", "gemma", "llama2", "llama3", "llama3.1", "llama3.2"),
    *("llama3.3", "llama4"),
)


def refuse_license(license: str | None) -> None:
    """Raises `RefusedInput` if a license is not an identifier of the Hub."""
    if license is None or license in _HUB_LICENSES:
        return
    try:
        is_known = canonicalize_license_expression(license).lower() == license and " " not in license
    except InvalidLicenseExpression:
        is_known = False
    if not is_known:
        raise RefusedInput(
            f"license={license}: use an identifier of the Hugging Face Hub in lower case, such as cc-by-sa-4.0, mit or"
            " other (https://huggingface.co/docs/hub/repositories-licenses)."
        )


def record_of(checkpoint: dict[str, Any], weights: Weights | None, license: str | None) -> dict[str, Any]:
    """Returns what a card says about the training of a checkpoint, as JSON-serializable values.

    Args:
        checkpoint: contents of a checkpoint, or of an exported folder, which contains the record of its checkpoint.
        weights: see `lit_gans.export.safetensors.save_networks`. Scores of the averaged generator are omitted for
            `raw`.
        license: license of the weights as an identifier of the Hub; None keeps the license of an exported folder.

    Returns:
        license: license that the user states, or None. data: name, license, attribution and Hub repository of the
        training data, or None if the checkpoint does not contain its configuration. init_from: origin of the initial
        networks: a name in the zoo or on the Hub, "networks of another run", or None. measurements: values and
        protocols of the measurements at the iteration of the checkpoint.
    """
    known = checkpoint[FORMAT_KEY].get(RECORD)
    with refusing(f"{CONFIG}: the entry {RECORD} cannot be read"):
        record = dict(known or _new_record(checkpoint))
        drops = weights == "raw" and EMA_KEY in checkpoint
        record["measurements"] = [
            {"values": _finite(each["values"]), "protocol": dict(each["protocol"])}
            for each in record["measurements"]
            if not (drops and each["protocol"]["weights"] == "ema")
        ]
        return record | {"license": license or record["license"]}


def described(
    checkpoint: dict[str, Any], weights: Weights | None, license: str | None, measured: bool = True
) -> dict[str, Any]:
    """Returns the contents of `config.json` of a checkpoint, with the record that a card needs.

    Args:
        checkpoint, weights, license: see `record_of`.
        measured: whether the scores of the checkpoint are those of the exported networks.
    """
    record = record_of(checkpoint, weights, license)
    config, _, _ = split(checkpoint)
    return {**config, RECORD: record if measured else record | {"measurements": []}}


def _new_record(checkpoint: dict[str, Any]) -> dict[str, Any]:
    config = config_of(checkpoint)
    origin = config.get("init_from")
    if origin is not None and not str(origin).startswith((HUB, f"{ZOO}/")):
        origin = "networks of another run"
    measurements = [
        {"values": _finite(state["values"]), "protocol": _without_paths(state["protocol"])}
        for state in measurements_of(checkpoint)
    ]
    return {"license": None, "data": training_data(config), "init_from": origin, "measurements": measurements}


def _finite(values: dict[str, float]) -> dict[str, float]:
    """Returns the values that JSON can represent."""
    return {key: float(value) for key, value in values.items() if math.isfinite(value)}


def _without_paths(value: Any) -> Any:
    """Replaces the paths in a protocol, which data sources and scores of users can contain.

    A name such as owner/name is replaced, too, because it can be a relative path.
    """
    if isinstance(value, dict):
        return {key: _without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(item) for item in value]
    if not isinstance(value, str) or not re.search(_SEPARATOR, value):
        return value
    return _PATH.sub(r"\1PATH\1", value)


def training_data(config: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the name, the license, the attribution and the Hub repository of the training data, if known."""
    node = config.get("data") or {}
    path = node.get("_target_") or node.get("class_path")
    if path is None:
        return None
    known = {class_path(cls): (name, cls) for name, cls in classes("lit_gans.data", LightningDataModule).items()}
    name, cls = known.get(path, (path.rpartition(".")[2], None))
    repository = str(node.get("name")) if name == "huggingface" and node.get("files") is None else None
    if repository and not _REPOSITORY.fullmatch(repository):
        repository = None  # the path of a folder
    licensing = {key: getattr(cls, key, None) for key in ("license", "attribution")}
    return {"name": name, **licensing, "repository": repository}


def card(
    config: dict[str, Any],
    contents: str,
    usage: str,
    *,
    dtype: str = "float32",
    library: str = "lit-gans",
    has_samples: bool = False,
) -> str:
    """Returns the model card of exported networks.

    Args:
        config: contents of `config.json` of an exported folder, including the record of `record_of`.
        contents: sentence that says what the exported files contain.
        usage: Markdown text that shows how to use the files.
        dtype: data type of the weights.
        library: library that loads the files, as the Hub names it.
        has_samples: whether `samples.png` is next to the card.
    """
    gan_class = class_of(config["class_path"], CONFIG)
    header = yaml.safe_dump(_header(config, gan_class, library), sort_keys=False, allow_unicode=True)
    parts = [
        f"---\n{header}---",
        f"# {gan_class.__name__}",
        f"Trained with lit_gans for {config['iteration']:,} iterations. {contents}",
        *([f"![Samples of seed 0, not selected]({SAMPLES})"] if has_samples else []),
        usage,
    ]
    lines = [*_license_lines(config[RECORD]), *_score_lines(config[RECORD], config["iteration"], dtype)]
    return "\n".join([*(f"{part}\n" for part in parts), *lines])


def card_of_networks(
    config: dict[str, Any], networks: Iterable[str], dtype: str, optimizers: bool, has_samples: bool
) -> str:
    """Returns the model card of a folder that `save_networks` writes.

    Args:
        config, dtype, has_samples: see `card`.
        networks: names of the networks in the folder.
        optimizers: whether the folder contains `training.pt`.
    """
    gan_class = class_of(config["class_path"], CONFIG)
    folders = {CycleGAN: "unpaired", Pix2Pix: "paired_folder"}
    data = next((data for model, data in folders.items() if issubclass(gan_class, model)), "folder")
    settings = " ".join([f"model={_name(gan_class)}", *_settings(config, gan_class)])
    classes = config["hyper_parameters"].get("num_classes")
    folders_of_classes = f", in one subfolder of `IMAGES` for each of the {classes} classes" if classes else ""
    names = f" Classes: {', '.join(config['class_names'])}." if "class_names" in config else ""
    call = "translate(images)" if issubclass(gan_class, Translator) else "sample(16, seed=0)"
    contents = f"""`{WEIGHTS}` contains the networks
{", ".join(f"`{network}`" for network in sorted(networks))}. `{CONFIG}` contains the class and its arguments.{names}"""
    usage = f"""```python
from lit_gans import load

images = load("FOLDER or hf://owner/name").{call}  # (n, channels, height, width) in [0, 1]
```

To start a training run on other images with these networks{folders_of_classes}:

```bash
lit-gans train {settings} data={data} data.root=IMAGES init_from="FOLDER or hf://owner/name"
```"""
    if optimizers:
        usage += f"""

`{TRAINING}` contains the optimizer states and the settings of the run, including its paths. With the same settings and
data, `lit-gans train ... resume=FOLDER` continues as if the run had not ended."""
    return card(config, contents, usage, dtype=dtype, has_samples=has_samples)


def card_for_diffusers(config: dict[str, Any], dtype: str) -> str:
    """Returns the model card of a folder that `save_diffusers` writes. See `card` for the arguments."""
    usage = """```python
from diffusers import AutoencoderKL

autoencoder = AutoencoderKL.from_pretrained("FOLDER or owner/name")
latents = autoencoder.encode(images).latent_dist.sample()  # images (n, channels, height, width) in [-1, 1]
images = autoencoder.decode(latents).sample
```

To start a training run on other images with this autoencoder, use `lit-gans train ... init_from=FOLDER`."""
    return card(config, f"`{DIFFUSERS_WEIGHTS}` contains the autoencoder.", usage, dtype=dtype, library="diffusers")


def card_for_onnx(config: dict[str, Any], file: str, inputs: dict[str, str]) -> str:
    """Returns the model card of a file that `export_onnx` writes.

    Args:
        config: see `card`.
        file: name of the file.
        inputs: shape of each input of the generator as text, by name.
    """
    rows = "\n".join(f"| `{name}` | {shape} |" for name, shape in inputs.items())
    arguments = ", ".join(f'"{name}": {name}' for name in inputs)
    usage = f"""| input | shape |
|---|---|
{rows}

```python
import onnxruntime

generator = onnxruntime.InferenceSession("{file}")
(images,) = generator.run(None, {{{arguments}}})  # (n, channels, height, width) in [0, 1]
```"""
    return card(config, f"`{file}` contains the generator.", usage, library="onnx")


def _name(gan_class: type) -> str:
    """Returns the name by which a class of GANs is registered, or the class's own name in lower case."""
    return next((name for name, known in gans().items() if known is gan_class), gan_class.__name__.lower())


def _header(config: dict[str, Any], gan_class: type, library: str) -> dict[str, Any]:
    record, data = config[RECORD], config[RECORD]["data"] or {}
    task = "image-to-image" if issubclass(gan_class, Translator) else "unconditional-image-generation"
    results, metrics = [], []
    for measurement in record["measurements"]:
        extractor = measurement["protocol"].get("extractor")
        values = [
            {"type": kind, "name": key, "value": value, "args": {"extractor": extractor}}
            for key, kind, value in _values(measurement)
        ]
        metrics += [value["type"] for value in values]
        text = str(measurement["protocol"].get("data"))
        dataset = {"type": data.get("repository") or data.get("name") or text.partition("(")[0], "name": text}
        results += [{"task": {"type": task}, "dataset": dataset, "metrics": values}] if values else []
    header: dict[str, Any] = {
        "license": license_of(record) or UNKNOWN,
        "library_name": library,
        "pipeline_tag": task,
        "tags": ["gan", _name(gan_class)],
    }
    if data.get("repository"):
        header["datasets"] = [data["repository"]]
    if results:
        header |= {
            "metrics": [*dict.fromkeys(metrics)],
            "model-index": [{"name": gan_class.__name__, "results": results}],
        }
    return header


def license_of(record: dict[str, Any]) -> str | None:
    """Returns the license of the weights, or None if it is unknown.

    Weights carry the license of the training images, unless the user states a license. The license of a run that
    started from other networks is unknown, because the license of these networks applies, too.
    """
    return record["license"] or (None if record["init_from"] else (record["data"] or {}).get("license"))


def _license_lines(record: dict[str, Any]) -> Iterator[str]:
    data, license = record["data"] or {}, license_of(record)
    yield "## License\n"
    yield f"- Training data: {data.get('name', 'unknown')}. {data.get('attribution') or 'The license is unknown'}."
    if record["init_from"]:
        yield f"- The training started from {record['init_from']}, whose license applies, too."
    if record["license"]:
        yield f"- Weights: {license}, as stated by the person who exported them."
    elif license == UNKNOWN:
        yield "- Weights: the terms of the training data apply."
    elif license:
        yield f"- Weights: {license}, the license of the training data. Weights and images need the attribution above."
    else:
        yield "- Weights: unknown license. To state it, use `lit-gans export ... license=IDENTIFIER`."
    yield ""


def _score_lines(record: dict[str, Any], iteration: int, dtype: str) -> Iterator[str]:
    yield "## Scores\n"
    if not record["measurements"]:
        yield f"These weights were not measured at iteration {iteration:,}."
    elif dtype != "float32":
        yield f"Measured in float32, before the weights were converted to {dtype}.\n"
    for measurement in record["measurements"]:
        yield "| score | value |\n|---|---|"
        yield from (f"| {key} | {value:.4g} |" for key, _, value in _values(measurement))
        yield "\nScores are comparable only if their protocols agree:\n"
        yield f"```json\n{json.dumps(measurement['protocol'], indent=2)}\n```"
    yield ""


def _values(measurement: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yields the key, the name without the extractor, and the value of each score."""
    for key, value in measurement["values"].items():
        short = key.removeprefix("metric/")
        yield short, short.removesuffix(f"_{measurement['protocol'].get('extractor')}"), float(value)


def _settings(config: dict[str, Any], gan_class: type) -> Iterator[str]:
    """Yields the command line arguments that create networks of the same sizes."""
    defaults = schema(gan_class)
    for name, value in config["hyper_parameters"].items():
        text = str(value).lower().replace(" ", "")
        if name in ("image_size", "channels"):
            yield f"data.{name}={text}"
        elif isinstance(value, str) and re.search(r"[/\\]", value):
            continue  # a path of the machine
        elif name != "seed" and isinstance(value, int | float | str | list) and value != defaults.get(name):
            yield f"model.{name}={text}"
