"""Compares the records of all ranks, and returns the differences as findings. Needs no tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from lit_gans.check.records import WITHOUT_GRADIENT, Call, End, State, Step, StepStart, Weight

SAME = 1e-6  # relative tolerance for projections that differ only by the order of summation
_SCALER = "Average the gradients over the ranks before scaler.unscale_ and scaler.step look for an overflow."
_REGISTER = (
    "No wrapped network contains them. Register their network as an attribute or in nn.ModuleList instead of a list, or"
    " wrap it by itself."
)
_SHARED = 0.05  # tolerated fraction of rows that ranks share; padding the last batch causes a smaller fraction


@dataclass
class RankRecords:
    """All records that a rank has published.

    Attributes:
        steps: recorded steps of each optimizer.
        calls: recorded inputs of each network.
        events: recorded optimizer steps in their order.
        counts: number of steps of each optimizer so far, recorded or not.
        state: state of the networks, from the latest step for which all ranks have published a state.
        end: the end of the script; None if it is still running.
    """

    steps: dict[str, list[Step]] = field(default_factory=dict)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    events: list[StepStart] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    state: State = field(default_factory=State)
    end: End | None = None


@dataclass(frozen=True)
class Finding:
    """A difference between the ranks, or between the ranks and a single process.

    Attributes:
        kind: machine-readable name of the kind of finding.
        where: optimizer, network or buffer.
        what: description of the measurement.
        remedy: change of the script that removes the fault; empty for a note.
        line: file and line of the script; empty if no line is known.
    """

    kind: str
    where: str
    what: str
    remedy: str = ""
    line: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether the ranks train a different model than a single process would. Otherwise, the finding is a note."""
        return bool(self.remedy)

    def __str__(self) -> str:
        at = f" ({self.line})" if self.line else ""
        return (
            f"{'FAULT' if self.is_fault else 'note'} {self.kind}: {self.where}: {self.what}{at}. {self.remedy}".strip()
        )


def compare(ranks: Sequence[RankRecords]) -> list[Finding]:
    """Returns the findings in the records of all ranks, faults first.

    For each optimizer, network or buffer, a kind of finding is returned only once, for the first step that shows it.
    """
    found: dict[tuple[str, str], Finding] = {}
    ranks = with_names_of_rank_0(ranks)
    counts = [*in_order(ranks), *_of_counts(ranks)]
    uneven = {finding.where for finding in counts if finding.is_fault}
    of_steps = [] if "all optimizers" in uneven else [each for each in _of_steps(ranks) if each.where not in uneven]
    for finding in (*counts, *of_steps, *_of_inputs(ranks), *_of_states(ranks), *_of_draws(ranks)):
        found.setdefault((finding.kind, finding.where), finding)
    faults = [finding for finding in found.values() if finding.is_fault]
    causes = [finding for finding in faults if finding.kind != "script_failed"]
    errors = [finding for finding in faults if finding.kind == "script_failed"]
    if causes:
        remedy = "Remove the faults above first: they can cause this error."
        errors = [replace(error, remedy=remedy) for error in errors]
    return [*causes, *errors, *(finding for finding in found.values() if not finding.is_fault)]


def with_names_of_rank_0(ranks: Sequence[RankRecords]) -> list[RankRecords]:
    """Returns the records, with optimizers renamed to the names that rank 0 uses.

    A rank that calls a whole network names it differently from a rank that calls only its parts. For example, rank 0
    might call the whole network for a summary. An optimizer whose name rank 0 does not know is therefore matched to an
    optimizer of rank 0 with equal parameter shapes. The parameters' names within their networks must differ, because
    optimizers with equal parameter names step different networks.
    """
    named = [*ranks[:1]]
    own = {event.optimizer: event for event in ranks[0].events}
    for rank in ranks[1:]:
        theirs = {event.optimizer: event for event in rank.events}
        free = [event for name, event in own.items() if name not in theirs]
        names: dict[str, str] = {}
        for name, event in theirs.items():
            same = [each for each in free if each.shapes == event.shapes and each.paths != event.paths]
            if name not in own and same:
                names[name] = same[0].optimizer
                free.remove(same[0])
        events = [replace(event, optimizer=names.get(event.optimizer, event.optimizer)) for event in rank.events]
        steps = {names.get(name, name): steps for name, steps in rank.steps.items()}
        end = rank.end and replace(rank.end, steps={names.get(name, name): n for name, n in rank.end.steps.items()})
        counts = {names.get(name, name): number for name, number in rank.counts.items()}
        named.append(replace(rank, events=events, steps=steps, counts=counts, end=end))
    return named


def _differ(values: Sequence[float], scale: float = 0.0) -> bool:
    if not all(map(math.isfinite, values)):  # an overflow on all ranks is not a difference between the ranks
        return len({*map(str, values)}) > 1
    return max(values) - min(values) > SAME * max(scale, *map(abs, values))


# ---- gradients and weights at each step


def _of_steps(ranks: Sequence[RankRecords]) -> Iterator[Finding]:
    for name in dict.fromkeys(name for rank in ranks for name in rank.steps):
        rows = [rank.steps.get(name, []) for rank in ranks]
        equal_before, is_averaged = True, True
        for steps in zip(*rows, strict=False):
            where, line = f"step {steps[0].number}", steps[0].line
            together = [*zip(*(step.weights for step in steps), strict=False)]
            compared = [weights for weights in together if not any(weight.skipped for weight in weights)]
            if steps[0].number == 1:
                yield from _skipped(name, together)
            unequal = [weights for weights in compared if _differ([weight.before for weight in weights])]
            if unequal and steps[0].number == 1:
                apart = _some([weights[0].name for weights in unequal], compared)
                equal_before = False
                yield Finding(
                    "weights_never_equal",
                    name,
                    f"{apart} differ between the ranks before the first step",
                    _REGISTER
                    if _is_outside(unequal)
                    else "Seed all ranks alike before the network is built, or broadcast it from rank 0, as"
                    " DistributedDataParallel does.",
                    line,
                )
            of_loss = [*_factors(name, where, line, steps)]
            # once different gradients have made the weights differ, all later gradients differ, too
            of_gradients = [*_gradients(name, where, steps[0], compared)] if is_averaged else []
            gradients = [*of_gradients, *_overflows(name, where, line, steps)]
            yield from (*of_loss, *gradients)
            is_averaged = is_averaged and not of_gradients
            if gradients:
                equal_before = False
            after = [weights[0].name for weights in compared if _differ([weight.after for weight in weights])]
            if equal_before and after:
                equal_before = False
                yield _parting(name, steps, _some(after, compared))
            stale = [*_stale(name, where, line, steps)]
            yield from stale or _accumulation(name, steps[0])


def _parting(name: str, steps: Sequence[Step], parameters: str) -> Finding:
    """Returns the finding for equal weights with equal gradients that differ after a step."""
    what = f"equal weights with equal gradients differ between the ranks after step {steps[0].number}: {parameters}"
    remedy = "Give the optimizer the same state on all ranks: load it on all ranks, and step in the same dtype."
    for option in steps[0].options:
        values = [step.options.get(option, []) for step in steps]
        if any(other != values[0] for other in values):
            shown = (f"{', '.join(f'{each:g}' for each in of)} on rank {rank}" for rank, of in enumerate(values))
            what += f" because {option} is {', '.join(shown)}"
            remedy = "Give the optimizer the same options on all ranks, and step its schedule on all ranks."
            break
    return Finding("weights_part", name, what, remedy, steps[0].line)


def _some(names: Sequence[str], compared: Sequence[object]) -> str:
    return f"{len(names)} of {len(compared)} parameters, first {names[0]},"


def _is_outside(differing: Sequence[Sequence[Weight]]) -> bool:
    return any(weight.outside for weights in differing for weight in weights)


def _skipped(name: str, together: Sequence[Sequence[Weight]]) -> Iterator[Finding]:
    reasons = [(weight.skipped, weight.name) for weights in together for weight in weights[:1] if weight.skipped]
    for reason in dict.fromkeys(reason for reason, _ in reasons):
        names = [own for why, own in reasons if why == reason]
        yield Finding("skipped", name, f"{len(names)} of {len(together)} parameters, first {names[0]}: it {reason}")


def _gradients(name: str, where: str, step: Step, compared: Sequence[Sequence[Weight]]) -> Iterator[Finding]:
    line = step.line
    missing = [weights[0].name for weights in compared if len({weight.gradient is None for weight in weights}) > 1]
    if missing:
        yield Finding(
            "gradient_on_some_ranks",
            name,
            f"{_some(missing, compared)} have a gradient on some ranks only, at {where}",
            "Choose the networks that a loss reaches from values that are equal on all ranks.",
            line,
        )
    known = [weights for weights in compared if all(weight.gradient is not None for weight in weights)]
    differing = [weights for weights in known if _differ([weight.gradient or 0.0 for weight in weights])]
    if differing:
        yield _why_they_differ(name, where, step, known, differing)
        return
    factors = [
        weights[0].gradient / mean
        for weights in known
        if (mean := _mean_local(weights)) is not None and abs(mean) > 1e-3 * weights[0].norm and weights[0].gradient
    ]
    if len(factors) < 1 or (len(factors) > 1 and max(factors) - min(factors) > 1e-3 * abs(median(factors))):
        return
    factor, world_size = median(factors), len(compared[0])
    for expected, kind, what in (
        (world_size, "gradients_summed", "the sum of the ranks' gradients instead of their mean"),
        (
            1 / world_size,
            "gradients_averaged_twice",
            "the mean of the ranks' gradients, divided by the world size again",
        ),
    ):
        if abs(factor / expected - 1) < 1e-3:
            yield Finding(
                kind,
                name,
                f"gradients are {what}, at {where}",
                "Average the gradients over the ranks exactly once.",
                line,
            )


def _factors(name: str, where: str, line: str, steps: Sequence[Step]) -> Iterator[Finding]:
    """Yields findings for factors of the loss that differ between the ranks."""
    if len({len(step.factors) for step in steps}) > 1:
        return
    every = [[factor.value for factor in factors] for factors in zip(*(step.factors for step in steps), strict=True)]
    for factors, values in zip(zip(*(step.factors for step in steps), strict=True), every, strict=True):
        if not _differ(values):
            continue
        shown = ", ".join(f"{value:.6g} on rank {rank}" for rank, value in enumerate(values))
        sums = ([value + other for value, other in zip(values, others, strict=True)] for others in every)
        if any(all(abs(total - 1) < SAME for total in totals) for totals in sums):
            what = f"two losses are mixed with the weight {shown}, at {where}; this is right if it is random (mixup)"
            yield Finding("mixture_of_each_rank", name, what, "", line)
        elif factors[0].divides and all(value.is_integer() for value in values):
            yield Finding("count_of_each_rank", name, f"a loss is divided by {shown}, at {where}", "", line)
        else:
            yield Finding(
                "loss_factor_of_each_rank",
                name,
                f"a loss is {'divided' if factors[0].divides else 'multiplied'} by {shown}, at {where}",
                "Compute this number, such as an adaptive weight, from values that are averaged over the ranks.",
                line,
            )


def _overflows(name: str, where: str, line: str, steps: Sequence[Step]) -> Iterator[Finding]:
    if len({step.overflows for step in steps}) > 1:
        ranks = ", ".join(str(rank) for rank, step in enumerate(steps) if step.overflows)
        yield Finding(
            "skipped_on_some_ranks", name, f"a gradient scaler skips {where} on rank {ranks} alone", _SCALER, line
        )


def _mean_local(weights: Sequence[Weight]) -> float | None:
    values = [weight.local for weight in weights]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _why_they_differ(
    name: str, where: str, step: Step, known: Sequence[Sequence[Weight]], differing: Sequence[Sequence[Weight]]
) -> Finding:
    """Returns the finding for gradients that differ between the ranks."""
    names = [weights[0].name for weights in differing]
    own = [
        weight.local is not None and not _differ([weight.local, weight.gradient or 0.0], 1e-6 * weight.norm)
        for weights in differing
        for weight in weights
    ]
    if all(own):
        remedy = (
            "Call the wrapped network (DistributedDataParallel) where the loss is computed, or average the gradients."
        )
        if step.in_lightning:
            remedy = "Call self.manual_backward(loss) instead of loss.backward(), without blocking its synchronization."
        return Finding(
            "gradients_not_averaged",
            name,
            f"each rank steps with the gradients of its own backward pass: {_some(names, known)} differ at {where}",
            _REGISTER if _is_outside(differing) else remedy,
            step.backward_line or step.line,
        )
    ratios = [
        tuple((weight.gradient or 0.0) / (weights[0].gradient or 1.0) for weight in weights)
        for weights in differing
        if abs(weights[0].gradient or 0.0) > 1e-3 * weights[0].norm
    ]
    if len(differing) == len(known) and len(ratios) > 1 and _proportional(ratios):
        shown = ", ".join(f"{factor:.4g}" for factor in ratios[0])
        return Finding(
            "factor_of_each_rank",
            name,
            f"the gradients of the ranks differ only by the factors {shown}, at {where}",
            "Compute factors of gradients, such as the norm for clipping or an adaptive weight, from averaged values.",
            step.line,
        )
    return Finding(
        "gradients_differ",
        name,
        f"{_some(names, known)} have gradients that differ between the ranks, at {where}",
        _REGISTER
        if _is_outside(differing)
        else "Average the gradients of all parameters over the ranks, after the last backward pass that adds to them.",
        step.line,
    )


def _proportional(ratios: Sequence[tuple[float, ...]]) -> bool:
    return all(max(column) - min(column) <= 1e-3 * abs(median(column)) for column in zip(*ratios, strict=True))


def _stale(name: str, where: str, line: str, steps: Sequence[Step]) -> Iterator[Finding]:
    mixed = [weight.name for step in steps for weight in step.weights if weight.mixed]
    if mixed:
        yield Finding(
            "stale_gradients",
            name,
            f"at {where}, gradients have contributions from before a previous step, first of {mixed[0]}",
            "Call zero_grad() of this optimizer before its backward pass, or freeze its network while others train.",
            line,
        )


def _accumulation(name: str, step: Step) -> Iterator[Finding]:
    if len(step.synchronized) > 1 and all(step.synchronized):
        yield Finding(
            "synchronizes_each_microbatch",
            name,
            f"one step accumulates {len(step.synchronized)} backward passes, and each backward pass averages gradients",
        )


# ---- which optimizers step, and how often


def in_order(ranks: Sequence[RankRecords]) -> Iterator[Finding]:
    """Yields a finding for the first step at which the ranks step different optimizers.

    A slow rank has fewer events than the other ranks, so only the events that all ranks have published are compared.
    """
    for number, events in enumerate(zip(*(rank.events for rank in ranks), strict=False), 1):
        names = [event.optimizer for event in events]
        if len(set(names)) > 1:
            who = ", ".join(f"rank {rank} {name}" for rank, name in enumerate(names))
            lines = [step.line for rank in ranks for steps in rank.steps.values() for step in steps[:1]]
            yield Finding(
                "order_of_steps",
                "all optimizers",
                f"at step {number}, counted over all optimizers, the ranks step different optimizers: {who}",
                "Choose the network to train from values that are equal on all ranks.",
                lines[0] if lines else "",
            )
            return


def _of_counts(ranks: Sequence[RankRecords]) -> Iterator[Finding]:
    ends = [rank.end for rank in ranks]
    for number, end in enumerate(ends):
        if end is None:
            what, remedy = "it is still running the script, which rank 0 has finished", ""
            if ranks[number].counts != ranks[0].counts:
                remedy = "Let all ranks run the same number of iterations."
            else:
                what += ", and has stepped each optimizer as often: nothing after its last step was compared"
            yield Finding("rank_has_not_ended", f"rank {number}", what, remedy)
        elif end.error:
            yield Finding("script_failed", f"rank {number}", end.error.rstrip("."), "Repair the script first.")
    known = [end for end in ends if end is not None and not end.error]
    if len(known) < len(ends):
        return
    for name in dict.fromkeys(name for end in known for name in end.steps):
        counts = [end.steps.get(name, 0) for end in known]
        if len(set(counts)) > 1:
            steps = [step for rank in ranks for step in rank.steps.get(name, [])]
            scaled, line = any(step.scaled for step in steps), next((step.line for step in steps), "")
            what = f"the ranks have stepped it {', '.join(map(str, counts))} times"
            remedy = "Decide whether to step from values that are equal on all ranks."
            yield (
                Finding(
                    "skipped_on_some_ranks", name, f"{what}: their gradient scalers skip different steps", _SCALER, line
                )
                if scaled
                else Finding("steps_of_some_ranks", name, what, remedy, line)
            )


# ---- inputs, random numbers, and the final state


def _of_inputs(ranks: Sequence[RankRecords]) -> Iterator[Finding]:
    found = [*_equal_inputs(ranks)]
    same = [finding for finding in found if finding.kind == "same_inputs" and finding.is_fault]
    yield from same or found


def _equal_inputs(ranks: Sequence[RankRecords]) -> Iterator[Finding]:
    for name in ranks[0].calls:
        calls = [rank.calls.get(name, []) for rank in ranks]
        rows = [[*zip(*(call.rows for call in calls_of_rank), strict=False)] for calls_of_rank in calls]
        fewest = min(map(len, calls))
        if fewest < 2 or not all(rows):
            continue
        own = [[frozenset(call.rows) for call in calls_of_rank[:fewest]] for calls_of_rank in calls]
        if len(set(own[0])) < 2:  # a constant, such as a grid of positions
            continue
        is_same = all(sets == own[0] for sets in own[1:])
        what = f"its inputs are equal on all ranks in {fewest} forward passes"
        if name.endswith(WITHOUT_GRADIENT):  # validation or samples, unless it is a frozen network such as an encoder
            if is_same and name.removesuffix(WITHOUT_GRADIENT) not in ranks[0].calls:
                yield Finding("same_inputs", name, f"{what}; shard them (DistributedSampler) if they are training data")
            continue
        if is_same:
            yield Finding(
                "same_inputs",
                name,
                what,
                "Shard the data over the ranks (DistributedSampler), and seed random inputs differently on each rank.",
            )
            continue
        fewest = min(fewest, *map(_calls_of_first_epoch, own))
        everything = [frozenset().union(*sets[:fewest]) for sets in own]
        shared = frozenset.intersection(*everything[:2]) if len(everything) == 2 else _shared_by_two(everything)
        share = len(shared) / max(1, min(map(len, everything)))
        if share > _SHARED:
            yield Finding(
                "shared_inputs",
                name,
                f"{share:.0%} of its inputs on a rank are also inputs on another rank",
                "Shard each epoch over the ranks, so that no two ranks load the same image (DistributedSampler).",
            )


def _calls_of_first_epoch(calls: Sequence[frozenset[str]]) -> int:
    """Returns the number of calls before a batch repeats some earlier rows.

    A shuffled sampler gives a rank other rows in each epoch, so later epochs share rows with the first epoch of another
    rank. A repeated batch, or a part of this batch, does not start an epoch, because penalties use a batch again.
    """
    seen: set[str] = set()
    for number, rows in enumerate(calls):
        if rows & seen and not any(rows <= earlier for earlier in calls[:number]):
            return number
        seen |= rows
    return len(calls)


def _shared_by_two(everything: Sequence[frozenset[str]]) -> frozenset[str]:
    counts: dict[str, int] = {}
    for rows in everything:
        for row in rows:
            counts[row] = counts.get(row, 0) + 1
    return frozenset(row for row, count in counts.items() if count > 1)


def _of_draws(ranks: Sequence[RankRecords]) -> Iterator[Finding]:
    """Yields a finding if all ranks draw the same random numbers in every step."""
    rows = [[step.random_state for steps in rank.steps.values() for step in steps] for rank in ranks]
    if len(rows[0]) < 2 or len(set(rows[0])) < len(rows[0]) or any(other != rows[0] for other in rows[1:]):
        return
    draws = ranks[0].state.draws
    seed = "call torch.manual_seed(seed + rank) after the networks are built with equal weights"
    what = "all ranks draw the same random numbers in each step"
    remedy = f"{draws[0]} has dropout: {seed}." if draws else ""
    if not draws:
        what += f"; if they are latents, noise or augmentations, {seed}"
    yield Finding("same_random_numbers", "torch's generator", what, remedy)


def _of_states(ranks: Sequence[RankRecords]) -> Iterator[Finding]:
    states = [rank.state for rank in ranks]
    common = [name for name in states[0].buffers if all(name in state.buffers for state in states)]
    buffers = [name for name in common if len({state.buffers[name] for state in states}) > 1]
    running = [name for name in buffers if name in states[0].running]
    whole = [name for name in buffers if name not in running and all(name in state.whole for state in states)]
    others = [name for name in buffers if name not in {*running, *whole}]
    if running:
        yield Finding(
            "local_statistics",
            running[0].rpartition(" of ")[2],
            f"the running statistics differ between the ranks ({len(running)} buffers, first {running[0]})",
        )
    if whole:
        yield Finding(
            "counters_differ",
            whole[0].rpartition(" of ")[2],
            f"{len(whole)} buffers of whole numbers differ between the ranks, first {whole[0]}; they are"
            " harmless if they are only counters",
        )
    if others:
        yield Finding(
            "buffers_differ",
            others[0].rpartition(" of ")[2],
            f"{len(others)} buffers differ between the ranks, first {others[0]}",
            "Compute these buffers from values that are averaged over the ranks, or broadcast them.",
        )
    for name in _unequal_averages(states):
        what = "its weights, which no optimizer steps, differ between the ranks"
        if _is_right_on_rank_0(name, states):
            what += ", because it was copied before the weights of rank 0 were broadcast: use only the copy on rank 0"
            yield Finding("averages_differ", name, what)
            continue
        yield Finding(
            "averages_differ",
            name,
            what,
            "Start from a copy that is equal on all ranks, and average weights that are equal on all ranks.",
        )
    for name, digest in states[0].frozen.items():
        if any(state.frozen.get(name, digest) != digest for state in states):
            yield Finding(
                "frozen_weights_differ",
                name,
                "weights that no optimizer steps differ between the ranks",
                "Seed all ranks alike before the network is built, load it on all ranks, or broadcast it from rank 0.",
            )
    for name in sorted({name for state in states for name in state.never}):
        yield Finding(
            "never_a_gradient", name, "it requires a gradient and its optimizer steps it, but it never had one"
        )


def _unequal_averages(states: Sequence[State]) -> list[str]:
    """Returns the networks that no optimizer steps and whose weights differ between the ranks.

    If only one rank calls such a network, for example rank 0 to generate samples, the network has a different name on
    this rank. Networks whose name does not exist on all ranks are therefore compared as a set, if their number is equal
    on all ranks.
    """
    common = [name for name in states[0].averages if all(name in state.averages for state in states)]
    unequal = [name for name in common if len({state.averages[name] for state in states}) > 1]
    others = [{name: digest for name, digest in state.averages.items() if name not in common} for state in states]
    digests = [sorted(each.values()) for each in others]
    if len({*map(len, digests)}) == 1 and any(each != digests[0] for each in digests):
        theirs = {digest for each in digests[1:] for digest in each}
        unequal += [name for name, digest in others[0].items() if digest not in theirs]
    return unequal


def _is_right_on_rank_0(name: str, states: Sequence[State]) -> bool:
    """Returns whether an averaged network was a copy of the initial weights on rank 0, but not on differing ranks."""
    right = states[0].averages[name]
    differing = [state for state in states if state.averages.get(name) != right]
    return name in states[0].copies and all(name in state.averages and name not in state.copies for state in differing)
