"""Strategies that wrap each network of a LightningModule separately.

They import nothing of lit_gans but checkpoints and errors: any module with several networks and manual optimization can
use them.
"""
