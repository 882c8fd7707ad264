"""Configuration: schemas from signatures, composition, validation, construction, and run folders."""
