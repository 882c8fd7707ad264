"""Cases of `gan_script.py`: what is found in each."""

RIGHT = ("none", "by_hand")
FAULTS = (
    "weights_never_equal",
    "gradients_summed",
    "gradients_averaged_twice",
    "gradients_not_averaged",
    "gradients_differ",
    "factor_of_each_rank",
    "steps_of_some_ranks",
    "order_of_steps",
    "same_random_numbers",
    "buffers_differ",
    "averages_differ",
    "same_inputs",
    "shared_inputs",
    "stale_gradients",
)
CONSEQUENCES = {  # further kinds that a fault brings with it
    "steps_of_some_ranks": {"order_of_steps", "averages_differ"},
    "same_random_numbers": {"same_inputs"},
    "weights_never_equal": {"averages_differ"},
}
NOTES = {"local_statistics": 1, "never_a_gradient": 2, "synchronizes_each_microbatch": 1}  # number of notes
