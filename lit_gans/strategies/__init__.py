"""Strategies that wrap each network of a LightningModule by itself. They need nothing else of lit_gans: any module with
several networks and manual optimization can use them.
"""
