"""Tables of the study: of each part, from the rows that were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from benchmarks import scaling_study
from benchmarks.cost_model import Cluster, Link, Sharding, link_of, step_seconds, traffic

Rows = Sequence[Mapping[str, Any]]
CELEBA_IMAGES = 202_599
MEBIBYTE = 2**20
SHARES = ("computation", "communication", "both", "data", "idle")
DEVICES = tuple(2**power for power in range(11))  # 1 .. 1,024
# data of the part `dual`: scores by key, the most important first, with whether the smallest or largest value is best
SCORES: dict[str, dict[str, tuple[str, Callable[..., float]]]] = {
    "digits": {"metric/fid_digits": ("FID", min), "metric/is_digits": ("IS", max)},
    "avatars": {"metric/fid_avatars": ("FID", min), "metric/attribute_distance": ("attributes", min)},
    "emoji": {"metric/fid_efficientnet_lite0": ("FID", min), "metric/kid_efficientnet_lite0": ("KID", min)},
    "stacked_digits": {"metric/modes_covered": ("modes", max), "metric/kl_uniform": ("KL", min)},
}
_OF_SCORES = {
    "digits": "FID and Inception Score have the features of a digit classifier.",
    "avatars": "FID has the features of a network that reads the attributes of cartoon faces. Attributes: total"
    " variation between the attributes of generated and real faces.",
    "emoji": "FID and KID have the features of EfficientNet-Lite0. FID is larger with fewer samples, KID is not.",
    "stacked_digits": "Modes: how many of the 1,000 triples a digit classifier finds, which fewer samples make fewer."
    " KL: divergence of their frequencies from equal ones, which fewer samples make larger.",
}
_SLACK = 1.1  # the score to reach is this many times worse than the worst last one, so that each run reaches it
_COLOSSAL = {  # names of the techniques in the Colossal-AI study, and ours
    "one process": "one process",
    "data parallel": "baseline",
    "mixed precision": "precision bf16",
    "accumulation": "accumulation 4",
    "clipping": "clipping 2",
    "ZeRO": "ZeRO 2",
}
_REPEATS = "images/s: median of n repeats. range: of the repeats."
_COMPUTED = "s an epoch (computed)"
_EPOCH = (
    f"Seconds are computed from images/s, for {CELEBA_IMAGES:,} images, as many as CelebA has. Epochs that were run are"
    " on the page of the studies."
)


class Table(NamedTuple):
    """A table of text: title, a row for each index, and sentences below it."""

    title: str
    frame: pd.DataFrame
    notes: Sequence[str] = ()


def measured(rows: Rows, part: str) -> pd.DataFrame:
    """Returns the measurements of a part, one row for each repeat of a cell."""
    return pd.DataFrame([row for row in rows if row["part"] == part and "reason" not in row])


def missing(rows: Rows, part: str) -> Table:
    """Returns the cells that could not be measured."""
    cells = [(row["cell"], row["reason"]) for row in rows if row["part"] == part and "reason" in row]
    return Table("Not measured here", pd.DataFrame(cells, columns=["cell", "reason"]))


def medians(frame: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Returns the medians of the repeats of each cell, with `n`, and the range of its speed, `low` and `high`."""
    groups = frame.groupby(list(keys), sort=False, dropna=False)
    found = groups.median(numeric_only=True)
    speed = groups["generator_images_per_second"]
    return found.assign(n=groups.size(), low=speed.min(), high=speed.max()).reset_index()


def sizes(frame: pd.DataFrame) -> str:
    """Returns the sizes of measurements as a sentence: images of a process, their height and width, timed steps."""
    batches, pixels, steps = (
        sorted(frame[name].dropna().astype(int).unique()) for name in ("batch_size", "image_size", "steps")
    )
    batch = f"Batch {batches[0]}" if len(batches) == 1 else f"Batches of {batches[0]} to {batches[-1]}"
    timed = f"; {' to '.join(map(str, dict.fromkeys((steps[0], steps[-1]))))} timed steps" if steps else ""
    return f"{batch} per process, images of {' or '.join(f'{size}x{size}' for size in pixels)} pixels{timed}."


def losses(row: Any) -> dict[str, str]:
    """Returns the losses of the discriminators and of the generator as text."""
    names = [name for name in row.index if name.startswith("loss/discriminator") and not pd.isna(row[name])]
    return {"loss D": " ".join(f"{row[name]:.3f}" for name in names), "loss G": f"{row['loss/generator']:.3f}"}


def _text(frame: pd.DataFrame, cells: Callable[[Any], Mapping[str, str]]) -> pd.DataFrame:
    return pd.DataFrame([cells(row) for _, row in frame.iterrows()])


def _speed(row: Any) -> dict[str, str]:
    speed = row["generator_images_per_second"]
    return {"images/s": f"{speed:.1f}", "range": f"{row['low']:.1f} .. {row['high']:.1f}"}


def epoch(row: Any) -> float:
    """Returns the seconds of an epoch of CelebA."""
    return float(CELEBA_IMAGES / row["generator_images_per_second"])


# ---- one function for each part


def batch(rows: Rows) -> list[Table]:
    """Returns throughput and memory by batch size, a table for each device."""
    notes = [_REPEATS, "parameters: of all networks. Memory on a CPU is the growth of the process.", _EPOCH]

    def cells(row: Any) -> dict[str, str]:
        return {
            **{"GAN": row["gan"], "parameters": f"{row['parameters']:,.0f}", "batch": str(row["batch_size"])},
            **_speed(row),
            **{_COMPUTED: f"{epoch(row):,.0f}", "s of the training": f"{row['fit_seconds']:.1f}"},
            **{"peak memory, MiB": f"{row['peak_memory'] / MEBIBYTE:.0f}", "n": str(row["n"])},
        }

    by_device = measured(rows, "batch").groupby("device", sort=False)
    return [
        Table(f"On {name}", _text(medians(own, "gan", "batch_size"), cells), [sizes(own), *notes])
        for name, own in by_device
    ]


def scaling_medians(rows: Rows) -> pd.DataFrame:
    """Returns the medians of the cells of `scaling`, with `one`, the speed of one process, and `efficiency`."""
    found = medians(measured(rows, "scaling"), "kind", "gan", "ranks", "batch_size")
    one = found[found["ranks"] == 1][["kind", "gan", "generator_images_per_second"]]
    one = one.rename(columns={"generator_images_per_second": "one"})
    found = found.merge(one, how="left", on=["kind", "gan"])
    return found.assign(efficiency=found["generator_images_per_second"] / found["one"] / found["ranks"])


def scaling(rows: Rows) -> list[Table]:
    """Returns a table of weak and one of strong scaling."""

    def cells(row: Any) -> dict[str, str]:
        return {
            **{"GAN": row["gan"], "processes": str(row["ranks"]), "batch each": str(row["batch_size"])},
            **_speed(row),
            "efficiency": "" if pd.isna(row["efficiency"]) else f"{100 * row['efficiency']:.0f} %",
            **losses(row),
            "n": str(row["n"]),
        }

    by_kind = scaling_medians(rows).groupby("kind", sort=False)
    ordered = sorted(by_kind, key=lambda item: item[0], reverse=True)  # weak first
    notes = ["One process also trains under `strategy=ddp`.", _REPEATS]
    return [Table(f"{kind.capitalize()} scaling", _text(own, cells), [sizes(own), *notes]) for kind, own in ordered]


def median_steps(rows: Rows) -> pd.DataFrame:
    """Returns the repeat with the median step of each cell of `overlap`, of two the faster one, and `n`."""
    found = []
    for _, own in measured(rows, "overlap").groupby("cell", sort=False):
        found.append(own.sort_values("step").iloc[(len(own) - 1) // 2].to_dict() | {"n": len(own)})
    return pd.DataFrame(found)


def overlap(rows: Rows) -> list[Table]:
    """Returns the milliseconds and shares of a step, and the speed with and without loading."""
    steps = median_steps(rows)

    def which(row: Any) -> dict[str, str]:
        return {"GAN": row["gan"], "processes": str(row["ranks"])}

    def step(row: Any) -> dict[str, str]:
        times = {f"{name}, ms": f"{1000 * row[name]:.1f}" for name in (*SHARES, "sum", "step")}
        return {**which(row), **times, "sum : step": f"{row['sum'] / row['step']:.3f}", "n": str(row["n"])}

    def shares(row: Any) -> dict[str, str]:
        return which(row) | {name: f"{100 * row[name] / row['sum']:.1f} %" for name in SHARES} | {"n": str(row["n"])}

    note = (
        "The repeat with the median step, so that its times add up. step: measured by another clock, from the end of"
        " the warm-up to the end of the last step. both: communication during computation. On a CPU, all that is"
        " neither communication nor waiting for data counts as computation."
    )
    of_sizes = sizes(measured(rows, "overlap"))
    shown = Table("Shares of a step", _text(steps, shares), [of_sizes])
    return [Table("A step", _text(steps, step), [of_sizes, note]), shown, loading(rows)]


def loading(rows: Rows) -> Table:
    """Returns images per second from files, and from memory, as weak scaling measured them."""
    files = medians(measured(rows, "overlap"), "gan", "ranks", "batch_size")
    memory = measured(rows, "scaling")
    if len(memory):
        memory = medians(memory[memory["kind"] == "weak"], "gan", "ranks", "batch_size")
        memory = memory.rename(columns={"generator_images_per_second": "without"})
        files = files.merge(memory[["gan", "ranks", "batch_size", "without"]], how="left")

    def cells(row: Any) -> dict[str, str]:
        speed, without = row["generator_images_per_second"], row.get("without")
        known = without is not None and not pd.isna(without)
        return {
            **{"GAN": row["gan"], "processes": str(row["ranks"]), "images/s from files": f"{speed:.1f}"},
            "from memory": f"{without:.1f}" if known else "",
            "share of it": f"{100 * speed / without:.0f} %" if known else "",
        }

    note = (
        "From memory: the cells of weak scaling, the same random images in every step, and nothing recorded. From"
        " files: JPEG files for two steps, packed, as every training packs them. Above 100 %: the noise of short cells."
    )
    return Table("With and without loading", _text(files, cells), [sizes(measured(rows, "overlap")), note])


def relative_speeds(rows: Rows) -> pd.DataFrame:
    """Returns the medians of the cells of `optimizations`, with `ratio`, the speed to that of their baseline.

    The ratio is missing for cells with another number of processes. `is_base` tells the baselines.
    """
    found = medians(measured(rows, "optimizations"), "gan", "variant", "batch_size")
    is_base = found.apply(lambda row: row["variant"] in ("baseline", f"batch {row['batch_size']}"), axis=1)
    found = found.assign(is_base=is_base)
    base = found[is_base][["gan", "batch_size", "ranks", "images_per_second"]]
    base = base.rename(columns={"images_per_second": "base"})
    found = found.merge(base, how="left", on=["gan", "batch_size", "ranks"])
    return found.assign(ratio=found["images_per_second"] / found["base"])


def optimizations(rows: Rows) -> list[Table]:
    """Returns each setting beside its baseline, a table for each GAN, and the tables of cores and of Colossal-AI."""
    found = relative_speeds(rows)
    notes = [
        f"{sizes(measured(rows, 'optimizations'))} {_REPEATS} {_EPOCH}",
        "The baseline is `strategy=ddp` in fp32. Every row trains from the same weights on the same images in the same"
        " order; the losses are those after all of them. Accumulation makes a quarter of the steps, of four"
        " microbatches each.",
        "Bucket sizes are the counterpart of Horovod's fusion buffer. Its cycle time has none: Horovod looks for"
        " gradients that are ready in fixed intervals, DDP reduces a bucket as soon as its last gradient is ready.",
    ]

    def cells(row: Any) -> dict[str, str]:
        return {
            **{"setting": row["variant"], "batch each": str(row["batch_size"]), **_speed(row)},
            **{
                "to baseline": "" if pd.isna(row["ratio"]) else f"{row['ratio']:.2f}",
                _COMPUTED: f"{epoch(row):,.0f}",
            },
            **losses(row),
            **{"MiB": f"{row['peak_memory'] / MEBIBYTE:.0f}", "n": str(row["n"])},
        }

    by_gan = found.groupby("gan", sort=False)
    own = [Table(gan, _text(each, cells), () if index else notes) for index, (gan, each) in enumerate(by_gan)]
    return [*own, cores(found), colossal(found)]


def cores(found: pd.DataFrame) -> Table:
    """Returns the table of the processes that share a machine's cores: by the system, by threads, or bound."""
    shown = found.set_index(["gan", "variant"])
    columns = {
        "one process": "one process",
        "all cores in each": "all cores in each",
        "its share of threads": "baseline",
        "bound to cores": "bound to cores",
    }
    rows = []
    for gan in found["gan"].unique():
        row = {"images/s": gan}
        for column, variant in columns.items():
            known = (gan, variant) in shown.index
            speed = _speed(shown.loc[(gan, variant)]) if known else {}
            row[column] = f"{speed['images/s']} ({speed['range']})" if known else "-"
        known = (gan, "bound to cores") in shown.index
        rows.append(row | {"to its share": f"{shown.loc[(gan, 'bound to cores'), 'ratio']:.2f}" if known else "-"})
    note = (
        "Median and range of the repeats. All cores in each: every process computes with as many threads as the machine"
        " has cores, as torch does by itself. Its share of threads: the baseline, with the cores divided among the"
        " processes. Bound to cores: the same, and each stays on cores of its own."
    )
    own = found[found["variant"].isin(columns.values())]
    return Table("Processes and cores", pd.DataFrame(rows), [sizes(own), note])


def colossal(found: pd.DataFrame) -> Table:
    """Returns the table of the Colossal-AI study: its six techniques for the first GAN and pix2pix."""
    shown = found.set_index(["gan", "variant"])
    rows, of_gans = [], []
    for gan in ("gan", "pix2pix"):
        of_gans += [f"{gan} {number:,.0f}" for number in found[found["gan"] == gan]["parameters"][:1]]
        for technique, variant in _COLOSSAL.items():
            if (gan, variant) in shown.index:
                row = shown.loc[(gan, variant)]
                ratio = "-" if pd.isna(row["ratio"]) else f"{row['ratio']:.2f}"
                which = {"GAN": gan, "technique": technique, "processes": f"{row['ranks']:.0f}", **_speed(row)}
                computed = {"to data parallel": ratio, _COMPUTED: f"{epoch(row):,.0f}"}
                rows.append(which | computed | losses(row) | {"n": f"{row['n']:.0f}"})
    own = found[found["gan"].isin(("gan", "pix2pix")) & found["variant"].isin(_COLOSSAL.values())]
    notes = [
        f"{sizes(own)} Parameters of both networks: {', '.join(of_gans)}.",
        f"{_EPOCH} {_REPEATS}",
        "One process computes on all cores of the machine, so its speed is not compared with two processes. Losses are"
        " those after the same images: one process has made more steps of smaller batches, accumulation fewer steps of"
        " larger ones.",
    ]
    return Table("The techniques of the Colossal-AI study", pd.DataFrame(rows), notes)


def deepspeed(rows: Rows) -> list[Table]:
    """Returns the seconds of an epoch under each loop."""
    found = medians(measured(rows, "deepspeed"), "loop", "ranks")
    plain = found[found["loop"] == "plain loop"]
    first = epoch(plain.iloc[0]) if len(plain) else None

    def cells(row: Any) -> dict[str, str]:
        ratio = "" if first is None else f"{first / epoch(row):.2f}"
        which = {"loop": row["loop"], "processes": str(row["ranks"]), **_speed(row), _COMPUTED: f"{epoch(row):,.0f}"}
        return {**which, "times as fast as the plain loop": ratio, "n": str(row["n"])}

    return [Table("Seconds an epoch", _text(found, cells), [sizes(found), f"{_EPOCH} {_REPEATS}"])]


def lightweight(rows: Rows) -> list[Table]:
    """Returns cost, speed and quality of each block at each width."""
    frame = measured(rows, "lightweight")
    found = medians(frame, "block", "multiplier")
    plain = found[(found["block"] == "plain") & (found["multiplier"] == 1)]["images_per_second"]
    fids = {key: own["fid"].tolist() for key, own in frame.groupby(["block", "multiplier"])}

    def cells(row: Any) -> dict[str, str]:
        speed = row["images_per_second"]
        return {
            **{"block": row["block"], "width": f"x {row['multiplier']:g}", "parameters": f"{row['parameters']:,.0f}"},
            "multiply-adds G": f"{row['generator_multiply_adds'] / 1e6:,.1f} M",
            "multiply-adds D": f"{row['discriminator_multiply_adds'] / 1e6:,.1f} M",
            **_speed(row),
            **{"speed-up": f"{speed / plain.iloc[0]:.2f}" if len(plain) else ""},
            **{"FID": _range(fids[row["block"], row["multiplier"]]), "n": str(row["n"])},
        }

    first = frame.iloc[0]
    note = (
        f"{_REPEATS} FID: `fid_digits` of {first['samples']} images after {first['fid_seconds']:g} s of training on the"
        " digits, with the range of the repeats."
    )
    return [Table("Blocks and width multipliers of DCGAN", _text(found, cells), [sizes(frame), note])]


# ---- trainings of several GANs on the same data


def dual(rows: Rows) -> list[Table]:
    """Returns the ends of the trainings, and their scores after as many images and as many seconds, for each data."""
    found = []
    for data, own in measured(rows, "dual").groupby("data", sort=False):
        found.append(_ends(str(data), own))
        limits = {"images": own["images"].iloc[0], "s": own["limit_seconds"].iloc[0]}
        found += [after(unit, str(data), own) for unit, limit in limits.items() if limit and not pd.isna(limit)]
    return found


def runs(own: pd.DataFrame) -> Iterator[tuple[int, str, pd.DataFrame]]:
    """Yields batch size, GAN and a row for each seed, the smallest batch first."""
    for size, of_size in own.groupby("batch_size"):
        for gan, seeds in of_size.groupby("gan", sort=False):
            yield int(size), str(gan), seeds


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.4g} ({min(values):.4g} .. {max(values):.4g})"


def after(unit: str, data: str, own: pd.DataFrame) -> Table:
    """Compares the trainings after as many real images (`images`), or seconds (`s`), as all of them have."""
    limit = own["images" if unit == "images" else "limit_seconds"].iloc[0]
    rows = []
    for size, gan, seeds in runs(own):
        until = []
        for points in seeds["points"]:  # up to the first one that reaches the limit, where a measurement was due
            reached = next(index for index, point in enumerate(points) if point[unit] >= limit)
            until.append(points[: reached + 1])
        row = {"GAN": gan, "batch": str(size)}
        for key, (name, best) in SCORES[data].items():
            row[f"{name}, last"] = _range([points[-1][key] for points in until])
            row[f"{name}, best"] = _range([best(point[key] for point in points) for points in until])
        if unit == "s":
            row["images/s"] = f"{median(points[-1]['images'] / points[-1]['s'] for points in until):.0f}"
            row["MiB"] = f"{median(seeds['memory']) / MEBIBYTE:.0f}"
        rows.append(row)
    notes = [f"Median of the seeds, and their range. last, best: of the measurements until then. {_OF_SCORES[data]}"]
    if unit == "s":
        notes.append("images/s: real images of all critic steps. MiB: peak memory of the training.")
    title = f"After {limit:,} real images" if unit == "images" else f"After {limit:g} s of training"
    return Table(f"{title}: {data}", pd.DataFrame(rows), notes)


def _ends(data: str, own: pd.DataFrame) -> Table:
    """Describes the end of each training, and when it reached a score that all of its batch size reach."""
    key, (headline, best) = next(iter(SCORES[data].items()))
    rows = []
    for size, gan, seeds in runs(own):
        last = [points[-1][key] for points in own[own["batch_size"] == size]["points"]]
        level = _SLACK * max(last) if best is min else min(last) / _SLACK
        reached = [
            next(point for point in points if best(point[key], level) == point[key]) for points in seeds["points"]
        ]
        ends = [points[-1] for points in seeds["points"]]
        busy, waiting, device = (
            median(each.get(f"utilization/{name}", -1) for each in seeds["utilization"])
            for name in ("processor", "waiting", "device")
        )
        scores = {name: _range([end[key] for end in ends]) for key, (name, _) in SCORES[data].items()}
        rows.append(
            {
                **{"GAN": gan, "batch": str(size), "seeds": str(len(seeds)), **scores},
                f"{headline} to reach": f"{level:.4g}",
                "s until": f"{median(point['s'] for point in reached):.1f}",
                "steps until": f"{median(point['iteration'] for point in reached):.0f}",
                "processor": f"{busy:.2f} ({100 * waiting:.1f} % waiting)",
                "device": "not told here" if device < 0 else f"{100 * device:.0f} %",
            }
        )
    worse = f"{'multiplied' if best is min else 'divided'} by {_SLACK}"
    note = (
        f"Median of the seeds, and their range. Seconds are those of training. {headline} to reach: the worst last one"
        f" of this batch size, {worse}. until: the first of the measurements that reaches it. processor: busy cores;"
        f" waiting for data beside it. {_OF_SCORES[data]}"
    )
    return Table(f"At the end: {data}", pd.DataFrame(rows), [note])


# ---- the cost model


def predictions(rows: Rows) -> pd.DataFrame:
    """Returns a row for each cell of `projection`: its link, and images per second predicted and measured."""
    found = []
    for cell, own in measured(rows, "projection").groupby("cell", sort=False):
        first = own.iloc[0]
        predicted = median(
            step_seconds(row["computation"], _traffic("ddp", row), Cluster(_link(row)), row["ranks"])
            for _, row in own.iterrows()
        )
        images = own["images_per_second"].median() * own["seconds"].median()
        found.append(
            {
                **{"cell": cell, "link": _link(first), "computation": first["computation"], "n": len(own)},
                **{"images": images / first["ranks"], "gradients": first["gradients"], "n_critic": first["n_critic"]},
                **{"reuses_fake": first["reuses_fake"], "predicted": images / predicted},
                "measured": own["images_per_second"].median(),
            }
        )
    return pd.DataFrame(found)


def _link(row: Any) -> Link:
    return link_of({int(size): seconds for size, seconds in row["all_reduces"].items()}, row["ranks"])


def _traffic(kind: Sharding, row: Any) -> Any:
    generator, discriminator = row["gradients"]
    return traffic(kind, generator, discriminator, row["n_critic"], row["reuses_fake"])


def projection(rows: Rows) -> list[Table]:
    """Returns what the cost model predicts, beside this machine's measurements and the scaling study's tables."""
    found = predictions(rows)

    def cells(row: Any) -> dict[str, str]:
        return {
            **{"": row["cell"], "latency, ms": f"{1e3 * row['link'].latency:.2f}"},
            **{"MB/s": f"{row['link'].bandwidth / 1e6:.1f}", "computation, ms": f"{1e3 * row['computation']:.0f}"},
            **{"images/s predicted": f"{row['predicted']:.1f}", "measured": f"{row['measured']:.1f}"},
            **{"error": f"{100 * (row['predicted'] / row['measured'] - 1):+.0f} %", "n": str(row["n"])},
        }

    note = (
        "Calibrated: latency and bandwidth by two all-reduces, computation by steps that exchange no gradients, with"
        " all processes at once. Predicted: the step that exchanges them, without overlap."
    )
    study = {"gradients": [4 * number for number in scaling_study.PARAMETERS["dcgan"]], "n_critic": 1}
    study |= {"reuses_fake": True, "computation": scaling_study.compute("dcgan", 128), "images": 128}
    last = found.iloc[-1]
    return [
        Table("Predicted and measured on this machine", _text(found, cells), [note]),
        scaling_study_table(),
        _far("The study's GPUs, DCGAN, 128 images each", scaling_study.calibrate(scaling_study.POINTS), study),
        _far(f"This machine, {last['cell']}'s link", Cluster(last["link"]), last),
    ]


def scaling_study_table() -> Table:
    """Returns the rows of the scaling study, and what the model calibrated on them predicts."""
    within, left_out = scaling_study.errors_in_sample(), scaling_study.errors_left_out()
    cluster = scaling_study.calibrate(scaling_study.POINTS)
    rows = [
        {
            **{"GAN": point.gan, "scaling": point.kind, "nodes": str(point.nodes)},
            "images/s": f"{point.images_per_second:.0f}",
            "predicted": f"{scaling_study.predicted(point, cluster):.0f}",
            "error": f"{100 * error:+.1f} %",
            "error if left out": f"{100 * left_out[point]:+.1f} %",
        }
        for point, error in within.items()
    ]
    lost = {(point.gan, point.kind, point.nodes): 1e3 * scaling_study.lost(point) for point in within}
    ratio = sum(scaling_study.PARAMETERS["sngan"]) / sum(scaling_study.PARAMETERS["dcgan"])
    medians_of = [100 * scaling_study.median_error(errors) for errors in (within, left_out)]
    notes = [
        f"Median error {medians_of[0]:.1f} %, of rows predicted from the other three {medians_of[1]:.1f} %. The study's"
        f" network is not known: latency {1e3 * cluster.between.latency:.2f} ms a message and a spread of"
        f" {100 * cluster.spread:.0f} % of a step between nodes explain its rows; bandwidth"
        f" ({cluster.between.bandwidth / 1e9:.0f} GB/s) hardly matters.",
        f"What explains the misses: at 8 nodes, DCGAN lost {lost['dcgan', 'weak', 8]:.0f} ms a step in weak and"
        f" {lost['dcgan', 'strong', 8]:.0f} ms in strong scaling with the same bytes: most of the loss grows with"
        f" the batch (loading, slow nodes) and not with the traffic; and SNGAN lost {lost['sngan', 'weak', 8]:.0f} ms,"
        f" though it reduces {100 * (ratio - 1):.0f} % more bytes, in fewer and larger tensors.",
    ]
    return Table("The scaling study's tables, one GPU a node", pd.DataFrame(rows), notes)


def _far(title: str, cluster: Cluster, step: Any) -> Table:
    """Returns images per second and efficiency up to 1,024 devices."""
    link = cluster.between
    grouped = replace(cluster, inside=Link(link.latency / 10, link.bandwidth * 10), devices_per_node=8)
    kinds: dict[str, tuple[Sharding, bool]] = {
        "ddp, ring": ("ddp", False),
        "ddp, hierarchical": ("ddp", True),
        "ZeRO 1, 2": ("zero_2", False),
        "ZeRO 3, fsdp": ("fsdp", False),
    }
    rows = []
    for devices in DEVICES:
        row = {"devices": f"{devices:,}"}
        for name, (kind, hierarchical) in kinds.items():
            used = grouped if hierarchical else cluster
            seconds = step_seconds(step["computation"], _traffic(kind, step), used, devices, hierarchical)
            speed, share = devices * step["images"] / seconds, step["computation"] / seconds
            row[name] = f"{speed:,.0f} ({100 * share:.0f} %)"
        rows.append(row)
    note = (
        "Images per second (efficiency), weak scaling. Hierarchical: 8 devices a node, joined by links 10 times faster;"
        " the others have one device a node."
    )
    return Table(f"{title}: prediction", pd.DataFrame(rows), [note])
