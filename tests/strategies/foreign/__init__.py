"""Modules of other projects, ported as their users would: a file each, with `Ported`, `module` and `batches`.

What a file imports is no dependency of this project, and a file is used only where it is installed.
"""
