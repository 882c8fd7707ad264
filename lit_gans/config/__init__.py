"""From signatures and overrides to checked objects: schemas, composition, construction, the folder of a run."""
