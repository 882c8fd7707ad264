"""Records of a rank. Records contain only plain values, so that they can be published as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

WITHOUT_GRADIENT = " without gradients"  # ends the name of a network's inputs for which autograd is off


@dataclass
class Weight:
    """Record of one parameter at an optimizer step. Its values are projections onto a fixed direction, in float64.

    Attributes:
        name: network and name of the parameter.
        before, after: projection of the weights before and after the step.
        gradient: projection of the gradient that the optimizer uses; None if the parameter has no gradient.
        norm: norm of the gradient that the optimizer uses.
        local: projection of the sum of the gradients that this rank's backward passes have computed.
        backwards: numbers of the backward passes in this sum, counted from the start of the script.
        mixed: whether the gradient accumulates backward passes from both before and after an earlier optimizer step.
        outside: whether no called network contains the parameter, or only a network that the forward pass of another
            network calls without containing it, for example because it is in a list.
        skipped: reason why the values cannot be compared between ranks, such as sharding; empty if they can.
    """

    name: str
    before: float = 0.0
    after: float = 0.0
    gradient: float | None = None
    norm: float = 0.0
    local: float | None = None
    backwards: list[int] = field(default_factory=list)
    mixed: bool = False
    outside: bool = False
    skipped: str = ""


@dataclass
class Factor:
    """A number that multiplies or divides a loss or one of its terms.

    Attributes:
        value: the number.
        divides: whether the loss is divided by the number.
    """

    value: float
    divides: bool


@dataclass
class Step:
    """Record of one optimizer step.

    Attributes:
        optimizer: name of the optimizer, which consists of its class and the networks that it steps.
        number: number of the step of this optimizer, from 1.
        line: file and line of the script that called the step.
        weights: the parameters of the optimizer.
        backward_line: file and line of the script that ran the last backward pass since the last step.
        in_lightning: whether a LightningModule that is called as a network contains parameters of the optimizer.
        random_state: digest of the state of the default random generators after the step.
        synchronized: for each backward pass since the last step, whether the wrapper of the network synchronized the
            gradients.
        factors: factors of the losses in the backward passes since the last step.
        scaled: whether a gradient scaler called the step.
        overflows: whether the scaler made a fused optimizer skip the step.
        options: numbers such as the learning rate, by the name of the option, for each parameter group.
    """

    optimizer: str
    number: int
    line: str
    weights: list[Weight]
    backward_line: str = ""
    in_lightning: bool = False
    random_state: str = ""
    synchronized: list[bool] = field(default_factory=list)
    factors: list[Factor] = field(default_factory=list)
    scaled: bool = False
    overflows: bool = False
    options: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class StepStart:
    """The start of a recorded optimizer step.

    Attributes:
        optimizer: name of the optimizer on this rank.
        shapes: digest of the optimizer's class and of the shapes of its parameters.
        paths: digest of the names of the parameters within their networks.
    """

    optimizer: str
    shapes: str = ""
    paths: str = ""


@dataclass
class Call:
    """The input of a forward pass of a network that no other forward pass of the network called.

    Attributes:
        network: name of the network.
        rows: digest of each row of the first input that has rows, except rows that are outputs of a network.
    """

    network: str
    rows: list[str]


@dataclass
class State:
    """The networks of a rank after some optimizer steps.

    Attributes:
        buffers: digest of each buffer of the networks, by name.
        running: names of the buffers that are running statistics of a normalization layer.
        whole: names of the buffers that contain only integers, such as counts and indices.
        averages: digest of the parameters of each network that no optimizer steps, such as an averaged copy.
        frozen: digest of the parameters that no optimizer steps, for each called network that is not an average.
        copies: names of the averages that were equal to a stepped network before that network's first step.
        never: names of the parameters that require a gradient but never had one.
        draws: names of the networks with dropout.
    """

    buffers: dict[str, str] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    averages: dict[str, str] = field(default_factory=dict)
    frozen: dict[str, str] = field(default_factory=dict)
    copies: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    draws: list[str] = field(default_factory=list)


@dataclass
class End:
    """The end of the script on a rank.

    Attributes:
        steps: number of steps of each optimizer.
        error: exception that ended the script; empty if there was none.
    """

    steps: dict[str, int]
    error: str = ""


def dumped(record: Step | StepStart | Call | State | End) -> bytes:
    """Returns a record as JSON."""
    return json.dumps(asdict(record)).encode()


def loaded_step(text: bytes) -> Step:
    """Returns a step from JSON."""
    values: dict[str, Any] = json.loads(text)
    weights = [Weight(**weight) for weight in values["weights"]]
    return Step(**values | {"weights": weights, "factors": [Factor(**factor) for factor in values["factors"]]})
