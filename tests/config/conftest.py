"""A registry that looks again."""

import pytest


@pytest.fixture
def forget():
    """Forgets the classes that were found, before and after a test, and when it is called."""
    from lit_gans.config import registry

    def now():
        registry.outside_modules.cache_clear()
        registry.classes.cache_clear()

    now()
    yield now
    now()
