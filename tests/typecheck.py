"""What checks the annotations under test: an int is a float, as everywhere in Python's typing."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
