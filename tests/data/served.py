"""What a training receives of data."""


def steps(data, epochs=range(1)):
    """Yields the steps of some epochs."""
    loader = data.train_dataloader()
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        for step in loader:
            yield data.on_after_batch_transfer(step, 0)
