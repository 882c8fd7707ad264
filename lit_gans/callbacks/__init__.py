"""Callbacks: averaged weights, samples, metrics, health, throughput, checkpoints, progress."""

from lit_gans.callbacks.checkpoint import RunCheckpoint
from lit_gans.callbacks.ema import EMA
from lit_gans.callbacks.evaluation import GenerativeMetrics, ModeMetrics, PairedMetrics
from lit_gans.callbacks.init_from import InitFrom
from lit_gans.callbacks.mirror import Mirror
from lit_gans.callbacks.monitor import StopOnPlateau
from lit_gans.callbacks.path_length import PathLength
from lit_gans.callbacks.power_ema import PowerEMA
from lit_gans.callbacks.progress_bar import IterationProgressBar
from lit_gans.callbacks.reconstruction import ReconstructionMetrics
from lit_gans.callbacks.run_config import RunConfig
from lit_gans.callbacks.samples import Samples
from lit_gans.callbacks.throughput import Throughput
from lit_gans.callbacks.watch import Watch

__all__ = [
    "EMA",
    "GenerativeMetrics",
    "InitFrom",
    "IterationProgressBar",
    "Mirror",
    "ModeMetrics",
    "PairedMetrics",
    "PathLength",
    "PowerEMA",
    "ReconstructionMetrics",
    "RunCheckpoint",
    "RunConfig",
    "Samples",
    "StopOnPlateau",
    "Throughput",
    "Watch",
]
