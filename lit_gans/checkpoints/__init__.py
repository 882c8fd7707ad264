"""What a checkpoint holds: single files and sharded folders."""
