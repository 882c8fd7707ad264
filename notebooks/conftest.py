"""The notebooks under test: the numbers of steps and of samples are smaller, and fewer parts of the study are drawn."""

import os

os.environ.setdefault("LIT_GANS_NOTEBOOK_STEPS", "6")
os.environ.setdefault("LIT_GANS_NOTEBOOK_SAMPLES", "300")
os.environ.setdefault("LIT_GANS_NOTEBOOK_PARTS", "scaling projection")
