"""Utilities that all packages of lit_gans use. They import no other package of lit_gans."""
