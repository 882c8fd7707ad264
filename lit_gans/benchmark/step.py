def step(preset: str = "full") -> None:
    """Placeholder"""
