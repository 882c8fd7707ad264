"""The notebooks under test: only the number of steps is shorter."""

import os

os.environ.setdefault("LIT_GANS_NOTEBOOK_STEPS", "6")
