"""Strategies that wrap each network of a LightningModule separately.

They are independent of the modules of lit_gans and support any module with several networks and manual optimization.
Importing this package registers their names with Lightning: `Trainer(strategy="network_ddp")`.
"""

from lit_gans.strategies.by_name import register as _register

_register()
