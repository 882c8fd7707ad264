"""Image sizes: one number for square images, or height and width for rectangular images."""

from __future__ import annotations

from collections.abc import Sequence

from lit_gans.common.errors import RefusedInput

Size = int | tuple[int, int]


def as_size(image_size: int | Sequence[int], name: str = "image_size") -> Size:
    """Converts an image size to its canonical form: one number if height and width are equal, otherwise a tuple.

    Args:
        image_size: one number, or height and width.
        name: name of the value, for the error message.

    Raises:
        RefusedInput: the size does not consist of one or two numbers, or a number is less than 1.
    """
    numbers = [image_size] if isinstance(image_size, int) else list(image_size)
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise RefusedInput(
            f"{name}={image_size} must be at least 1: one number of pixels for squares, or [height, width]."
        )
    height, width = numbers[0], numbers[-1]
    return height if height == width else (height, width)


def sides(image_size: Size) -> tuple[int, int]:
    """Returns the height and width of an image size."""
    return (image_size, image_size) if isinstance(image_size, int) else image_size


def size_value(image_size: Size) -> str:
    """Formats an image size as it is typed on the command line."""
    height, width = sides(image_size)
    return str(height) if height == width else f"[{height},{width}]"


def size_text(image_size: Size) -> str:
    """Formats an image size for a message, such as `64x64` or `96 high and 160 wide`.

    For a rectangle, the text names the sides, because both orders of height and width are common.
    """
    height, width = sides(image_size)
    return f"{height}x{width}" if height == width else f"{height} high and {width} wide"
