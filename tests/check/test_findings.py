"""The comparison alone, on records that are written by hand."""

from dataclasses import replace

import pytest

from lit_gans.check.findings import RankRecords, compare
from lit_gans.check.records import WITHOUT_GRADIENT, Call, End, Factor, State, Step, StepStart, Weight


def rank(gradients=(1.0, 2.0), before=(3.0, 4.0), after=(2.0, 3.0), local=None, **settings):
    """Records of one step of two parameters."""
    local = gradients if local is None else local
    values = zip(("a", "b"), before, after, gradients, local, strict=True)
    weights = [
        Weight(f"{name} of net", *own, gradient=gradient, norm=2.0, local=mine, backwards=[0], **settings)
        for name, *own, gradient, mine in values
    ]
    steps = {"SGD of net": [Step("SGD of net", 1, "train.py:7", weights, "")]}
    return RankRecords(steps=steps, events=[StepStart("SGD of net", "4, 1", "a, b")], end=End({"SGD of net": 1}))


def kinds(*ranks):
    return [finding.kind for finding in compare(ranks)]


def test_equal_ranks_have_no_findings():
    assert kinds(rank(), rank()) == []
    assert kinds(rank(), rank(gradients=(1 + 1e-9, 2.0)), rank()) == [], "rounding"


@pytest.mark.parametrize(("factor", "kind"), [(2, "gradients_summed"), (0.5, "gradients_averaged_twice"), (0.3, None)])
def test_gradients_are_compared_with_the_mean_of_what_the_ranks_have_computed(factor, kind):
    """A factor that is neither the number of ranks nor its inverse is that of clipping or of a loss scale."""
    found = kinds(*(rank((3.0 * factor, 4.0 * factor), local=local) for local in ((1.0, 2.0), (5.0, 6.0))))
    assert found == ([] if kind is None else [kind])


def test_a_rank_that_is_late_has_fewer_steps_and_is_no_fault_until_it_ends():
    late = rank()
    late.steps, late.events, late.end = {}, [], None
    assert kinds(rank(), late) == ["rank_has_not_ended"]


@pytest.mark.parametrize(("number", "is_fault"), [(30, False), (29, True)])
def test_a_rank_that_has_not_ended_is_a_fault_only_if_it_has_stepped_less_often(number, is_fault):
    first, late = rank(), rank()
    first.counts, late.counts, late.end = {"SGD of net": 30}, {"SGD of net": number}, None
    (finding,) = compare([first, late])
    assert (finding.kind, finding.is_fault) == ("rank_has_not_ended", is_fault)


def test_gradients_that_differ_because_earlier_ones_did_are_not_reported_again():
    """The second step has gradients of weights that differ, and parts of other backward passes."""
    ranks = []
    for own in (rank((1.0, 2.0)), rank((3.0, 5.0))):
        (later,) = rank((own.steps["SGD of net"][0].weights[0].gradient, 7.0), local=(0.0, 0.0)).steps["SGD of net"]
        later.number = 2
        own.steps["SGD of net"].append(later)
        ranks.append(own)
    assert kinds(*ranks) == ["gradients_not_averaged"]


def named(name, paths="a, b", shapes="4, 1"):
    records = rank()
    records.steps = {name: records.steps["SGD of net"]}
    records.events, records.end = [StepStart(name, shapes, paths)], End({name: 1})
    return records


def test_one_optimizer_has_several_names_where_a_rank_calls_the_parts_of_a_network():
    whole = named("SGD of net")
    assert kinds(whole, named("SGD of Encoder, Decoder", paths="weight, weight")) == []
    parted = named("SGD of Encoder, Decoder", paths="weight, weight")
    parted.steps["SGD of Encoder, Decoder"][0].weights[0].after = 7.0
    (finding,) = compare([whole, parted])
    assert (finding.kind, finding.where) == ("weights_part", "SGD of net")
    assert "order_of_steps" in kinds(whole, named("SGD of other")), "equal names of parameters: another network"
    assert "order_of_steps" in kinds(whole, named("SGD of parts", paths="weight, weight", shapes="4, 2"))


def test_shards_are_skipped_and_named():
    (finding,) = compare([rank(skipped="is sharded"), rank((7.0, 8.0), skipped="is sharded")])
    assert (finding.kind, finding.is_fault) == ("skipped", False)
    assert "2 of 2 parameters, first a of net: it is sharded" in finding.what


def test_weights_that_part_without_different_gradients():
    assert kinds(rank(), rank(after=(2.0, 3.5))) == ["weights_part"]


def test_weights_that_part_by_the_options_of_an_optimizer():
    ranks = [rank(), rank(after=(2.0, 3.5))]
    for records, rate in zip(ranks, (0.1, 0.2), strict=True):
        records.steps["SGD of net"][0].options = {"momentum": [0.9, 0.9], "lr": [0.3, rate]}
    (finding,) = compare(ranks)
    assert finding.kind == "weights_part"
    assert "because lr is 0.3, 0.1 on rank 0, 0.3, 0.2 on rank 1" in finding.what
    assert finding.remedy == "Give the optimizer the same options on all ranks, and step its schedule on all ranks."
    ranks[1].steps["SGD of net"][0].options = ranks[0].steps["SGD of net"][0].options
    (finding,) = compare(ranks)
    assert "because" not in finding.what
    assert "state" in finding.remedy, "the gradients are equal already"


def with_inputs(*rows):
    records = rank()
    records.calls["net"] = [Call("net", [*each]) for each in rows]
    return records


def test_inputs_are_equal_shared_or_constant():
    assert kinds(with_inputs("ab", "cd"), with_inputs("ab", "cd")) == ["same_inputs"]
    assert kinds(with_inputs("ab", "cd"), with_inputs("be", "fg")) == ["shared_inputs"]
    assert kinds(with_inputs("ab", "cd"), with_inputs("ef", "gh")) == []
    assert kinds(with_inputs("ab", "ab"), with_inputs("ab", "ab")) == [], "such as a grid of positions"


def test_inputs_without_gradients_are_no_fault():
    """Validation images, or the same latents for samples, are often equal on all ranks."""
    ranks = with_inputs("ab", "cd"), with_inputs("ef", "gh")
    for records in ranks:
        records.calls[f"net{WITHOUT_GRADIENT}"] = [Call("net", ["v"]), Call("net", ["w"])]
        records.calls[f"other{WITHOUT_GRADIENT}"] = [Call("other", [*"vw"]), Call("other", [*"xy"])]
    (note,) = compare(ranks)
    assert (note.kind, note.where, note.is_fault) == ("same_inputs", "other without gradients", False)
    ranks[1].calls[f"other{WITHOUT_GRADIENT}"][1].rows = [*"vz"]
    assert kinds(*ranks) == []
    ranks[1].calls["net"] = [Call("net", [*"ae"]), Call("net", [*"gh"])]
    assert kinds(*ranks) == ["shared_inputs"]


def test_a_shuffled_epoch_may_give_a_rank_the_rows_of_another_rank():
    assert kinds(with_inputs("ab", "cd", "ae"), with_inputs("ef", "gh", "cg")) == [], "the second epoch"
    assert kinds(with_inputs("ab", "cd", "aef"), with_inputs("cb", "ad", "bf")) == ["shared_inputs"], "the first epoch"
    again = with_inputs("ab", "a", "ab", "cd"), with_inputs("ef", "e", "ef", "dg")
    assert kinds(*again) == ["shared_inputs"], "a batch, and then a part of it for a penalty, is no second epoch"


def with_factors(*factors, scaled=False, steps=1):
    records = rank()
    (step,) = records.steps["SGD of net"]
    step.factors, step.scaled = [Factor(*each) for each in factors], scaled
    records.end = End({"SGD of net": steps})
    return records


def test_a_number_that_multiplies_the_loss_is_compared_and_a_count_is_a_note():
    assert kinds(with_factors((0.5, False)), with_factors((0.5, False))) == []
    assert kinds(with_factors((0.5, False)), with_factors((0.4, False))) == ["loss_factor_of_each_rank"]
    (note,) = compare([with_factors((31.0, True)), with_factors((28.0, True))])
    assert (note.kind, note.is_fault) == ("count_of_each_rank", False)
    assert kinds(with_factors((0.5, False)), with_factors()) == [], "another loss, which has no counterpart"


def test_weights_that_mix_two_losses_may_be_random_on_each_rank():
    """Mixup draws them; a factor without a complement is still a fault."""
    ranks = [with_factors((weight, False), (1 - weight, False), (weight + 7, False)) for weight in (0.3, 0.9)]
    fault, note = compare(ranks)
    assert (note.kind, note.is_fault) == ("mixture_of_each_rank", False)
    assert "0.3 on rank 0, 0.9 on rank 1" in note.what
    assert (fault.kind, "7.3 on rank 0" in fault.what) == ("loss_factor_of_each_rank", True)


def test_a_step_that_a_gradient_scaler_skips_on_one_rank_has_its_own_name():
    skipped = with_factors(scaled=True, steps=2)
    assert kinds(skipped, with_factors(steps=3)) == ["skipped_on_some_ranks"]
    overflow = with_factors(scaled=True)
    overflow.steps["SGD of net"][0].overflows = True
    assert kinds(with_factors(scaled=True), overflow) == ["skipped_on_some_ranks"]


def test_an_overflow_on_all_ranks_is_none_of_their_differences():
    nan = float("nan")
    assert kinds(rank((nan, 2.0), after=(nan, 3.0)), rank((nan, 2.0), after=(nan, 3.0))) == []
    assert kinds(rank((nan, 2.0), local=(1.0, 2.0)), rank(local=(1.0, 2.0))) == ["gradients_differ"]


def with_state(buffers, **averages):
    records = rank()
    records.state = State(buffers=buffers, averages=averages)
    return records


def test_buffers_of_whole_numbers_are_a_note():
    counts = [with_state({"used of net": digest, "codes of net": digest}) for digest in "ab"]
    for records in counts:
        records.state.whole = ["used of net"]
    fault, note = compare(counts)
    assert (fault.kind, fault.is_fault) == ("buffers_differ", True)
    assert (note.kind, note.is_fault) == ("counters_differ", False)
    assert "1 buffers of whole numbers" in note.what
    counts[1].state.whole = []
    assert kinds(*counts) == ["buffers_differ"]


def test_an_average_is_right_on_rank_0_alone_where_it_began_as_its_weights():
    def faults(*copies):
        ranks = [with_state({}, ema=digest) for digest in "abb"]
        for records, is_copy in zip(ranks, copies, strict=True):
            records.state.copies = ["ema"] if is_copy else []
        (finding,) = compare(ranks)
        assert finding.kind == "averages_differ"
        return finding.is_fault

    assert not faults(True, False, False)
    assert faults(False, False, False)
    assert faults(True, True, False), "an equal beginning: it parts in training"
    assert faults(False, True, True)


def test_frozen_networks_are_compared_where_all_ranks_call_them():
    ranks = [with_state({}), with_state({}), with_state({})]
    ranks[0].state.frozen, ranks[2].state.frozen = {"judge": "a", "of rank 0": "c"}, {"judge": "a"}
    assert kinds(*ranks) == []
    ranks[2].state.frozen = {"judge": "b"}
    (finding,) = compare(ranks)
    assert (finding.kind, finding.where, finding.is_fault) == ("frozen_weights_differ", "judge", True)


def test_a_network_that_one_rank_calls_alone_is_compared_where_it_has_a_counterpart():
    """Such as an average that rank 0 samples from, and thus knows by another name."""
    called = with_state({"mean of inception": "a"}, generator_ema="b")
    assert kinds(called, with_state({}, copy="b")) == []
    assert kinds(called, with_state({}, copy="c")) == ["averages_differ"]
    assert kinds(called, with_state({})) == []
    assert kinds(called, with_state({"mean of inception": "c"}, generator_ema="b")) == ["buffers_differ"]
    assert kinds(called, with_state({}, generator_ema="c")) == ["averages_differ"]


def test_a_parameter_that_no_wrapped_network_contains_is_to_be_registered():
    apart = {"outside": True, "before": (3.0, 4.5)}
    faults = compare([rank(outside=True), rank((1.0, 3.0), **apart)])
    assert [fault.kind for fault in faults] == ["weights_never_equal", "gradients_not_averaged"]
    assert all("nn.ModuleList" in fault.remedy for fault in faults)
    (differs,) = compare([rank(local=(0.0, 0.0), outside=True), rank((1.0, 3.0), local=(0.0, 0.0), outside=True)])
    assert (differs.kind, "nn.ModuleList" in differs.remedy) == ("gradients_differ", True)
    (fault,) = compare([rank(), rank((1.0, 3.0))])
    assert "nn.ModuleList" not in fault.remedy


def test_gradients_that_are_not_averaged_name_the_line_of_the_backward_pass_and_what_lightning_needs():
    ranks = [rank(), rank((1.0, 3.0))]
    ranks[0].steps["SGD of net"][0].backward_line = "train.py:6"
    (fault,) = compare(ranks)
    assert fault.line == "train.py:6"
    assert fault.remedy.startswith("Call the wrapped network")
    ranks[0].steps["SGD of net"][0].in_lightning = True
    (fault,) = compare(ranks)
    assert fault.remedy.startswith("Call self.manual_backward(loss) instead of loss.backward()")


def test_an_error_of_the_script_comes_after_the_faults_that_can_cause_it():
    ranks = [rank(), rank((1.0, 3.0))]
    for records in ranks:
        records.end = End({"SGD of net": 1}, "RuntimeError: a bug in DDP.")
    cause, *errors = compare(ranks)
    assert cause.kind == "gradients_not_averaged"
    assert [error.kind for error in errors] == ["script_failed", "script_failed"]
    assert str(errors[0]).endswith("a bug in DDP. Remove the faults above first: they can cause this error.")
    ranks[1].steps = ranks[0].steps
    assert {error.remedy for error in compare(ranks)} == {"Repair the script first."}


@pytest.mark.parametrize("draws", [[], ["net"]])
def test_equal_random_numbers_have_a_remedy(draws):
    ranks = [rank(), rank()]
    for records in ranks:
        (step,) = records.steps["SGD of net"]
        records.steps["SGD of net"] = [replace(step, random_state=state) for state in "ab"]
        records.state.draws = draws
    (finding,) = compare(ranks)
    assert (finding.kind, finding.is_fault) == ("same_random_numbers", bool(draws))
    assert "torch.manual_seed(seed + rank)" in str(finding)
