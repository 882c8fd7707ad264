"""Public trainers of several networks on two CPU processes, from checkouts of their repositories: see `__main__.py`."""
