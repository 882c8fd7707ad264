"""Strategies that wrap each network of a LightningModule separately.

They are independent of the modules of lit_gans and support any module with several networks and manual optimization.
"""
