"""The notebooks under test: only the numbers of steps and of samples are smaller."""

import os

os.environ.setdefault("LIT_GANS_NOTEBOOK_STEPS", "6")
os.environ.setdefault("LIT_GANS_NOTEBOOK_SAMPLES", "300")
