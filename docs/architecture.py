"""The architecture picture: the rooms of `lit_gans` by floor, read from the imports as they are, as a picture.

`python docs/architecture.py FILE` writes it by itself (.svg or .png); the site's hook draws it at every build.
"""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

PACKAGE = Path(__file__).parents[1] / "lit_gans"
WIDTH, FLOOR, BOX = 9.6, 1.1, (1.32, 0.5)  # inches: the picture, a floor, a room
LINE, FILL, WRONG = "#546e7a", "#eef3f6", "#c62828"


def rooms(package: Path = PACKAGE) -> dict[str, str]:
    """Returns what each subpackage says of itself in the first sentence of its docstring."""
    files = {path.parent.name: path for path in sorted(package.glob("*/__init__.py")) if num_files(path.parent)}
    found = {name: ast.get_docstring(ast.parse(path.read_text())) or "" for name, path in files.items()}
    return {name: " ".join(text.split("\n\n")[0].split()) for name, text in found.items()}


def num_files(folder: Path) -> int:
    """Returns how many Python files a room has, `__init__.py` not counted."""
    return sum(path.name != "__init__.py" for path in folder.rglob("*.py"))


def arrows(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Returns which rooms each room imports: at the top of its files and inside functions, but not for types only."""
    names = rooms(package)
    found: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        for path in (package / name).rglob("*.py"):
            modules = (module.split(".") for module in _imports(ast.parse(path.read_text())))
            found[name] |= {parts[1] for parts in modules if parts[0] == package.name and len(parts) > 1}
        found[name] = (found[name] & set(names)) - {name}
    return found


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield from _imports(node)


def circular(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Returns the arrows that close a circle, which the import rules forbid: the picture shows them in red."""
    found: set[tuple[str, str]] = set()
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        for other in sorted(graph[name] - done):
            if other in (*above, name):
                found.add((name, other))
            else:
                visit(other, (*above, name))
        done.add(name)

    for name in graph:
        visit(name, ())
    return found


def downward(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns the graph without the arrows that close a circle."""
    back = circular(graph)
    return {name: {other for other in others if (name, other) not in back} for name, others in graph.items()}


def floors(graph: dict[str, set[str]]) -> dict[str, int]:
    """Returns the floor of each room of a graph without circles: 0 imports nothing, every other is one above the
    highest that it imports.
    """
    found: dict[str, int] = {}

    def floor(name: str) -> int:
        if name not in found:
            found[name] = 1 + max((floor(other) for other in graph[name]), default=-1)
        return found[name]

    return {name: floor(name) for name in graph}


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns the arrows that no longer way through other rooms implies (the transitive reduction)."""

    def below(name: str) -> set[str]:
        return graph[name].union(*(below(other) for other in graph[name]))

    return {name: others - set().union(*(below(other) for other in others)) for name, others in graph.items()}


def places(graph: dict[str, set[str]], levels: dict[str, int]) -> dict[str, tuple[float, float]]:
    """Returns the center of each room: floors from the top down, rooms of a floor under those that import them."""
    top = max(levels.values())
    found: dict[str, tuple[float, float]] = {}
    for level in range(top, -1, -1):
        members = sorted(name for name, own in levels.items() if own == level)

        def wish(name: str) -> float:
            above = [found[other][0] for other in found if name in graph[other]]
            return sum(above) / len(above) if above else WIDTH / 2

        for index, name in enumerate(sorted(members, key=wish)):
            found[name] = (WIDTH * (index + 1) / (len(members) + 1), FLOOR * (level + 0.5))
    return found


def draw(path: str | Path | io.BytesIO, package: Path = PACKAGE, file_format: str | None = None) -> None:
    """Writes the picture: every room, and the imports that no longer way implies."""
    back, graph = circular(arrows(package)), downward(arrows(package))
    levels, drawn = floors(graph), reduced(graph)
    centers = places(drawn, levels)
    figure = Figure(figsize=(WIDTH, FLOOR * (max(levels.values()) + 1)))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, FLOOR * (max(levels.values()) + 1)))
    axes.axis("off")
    for name, others in drawn.items():
        for index, other in enumerate(sorted(others, key=lambda other: centers[other])):
            sources = sorted((own for own in drawn if other in drawn[own]), key=lambda own: centers[own])
            start = _beside(centers[name], index, len(others), -BOX[1] / 2)
            end = _beside(centers[other], sources.index(name), len(sources), BOX[1] / 2)
            axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=LINE, shrinkB=1))
    for name, other in sorted(back):
        arc = {"connectionstyle": "arc3,rad=0.3", "linestyle": "--", "color": WRONG}
        axes.add_patch(FancyArrowPatch(centers[name], centers[other], arrowstyle="-|>", mutation_scale=11, **arc))
    for name, (x, y) in centers.items():
        corner = (x - BOX[0] / 2, y - BOX[1] / 2)
        axes.add_patch(FancyBboxPatch(corner, *BOX, "round,pad=0,rounding_size=0.08", fc=FILL, ec="#263238", lw=1))
        axes.text(x, y + 0.06, name, ha="center", va="center", weight="bold", size=11.5)
        num = num_files(package / name)
        axes.text(x, y - 0.14, f"{num} file{'s' * (num != 1)}", ha="center", va="center", size=8, color=LINE)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "lit_gans", "font.family": "sans-serif"}):
        figure.savefig(path, format=file_format, metadata={"Date": None} if file_format == "svg" else None, dpi=110)


def _beside(center: tuple[float, float], index: int, num: int, down: float) -> tuple[float, float]:
    """Returns the place of one of `num` arrows at the edge of a room."""
    return center[0] + (index - (num - 1) / 2) * BOX[0] / (num + 1), center[1] + down


def table(package: Path = PACKAGE) -> str:
    """Returns every room with its docstring, its floor and all that it imports, in Markdown."""
    graph, said = arrows(package), rooms(package)
    levels = floors(downward(graph))
    lines = ["| floor | subpackage | contents | imports |", "|---|---|---|---|"]
    for name in sorted(graph, key=lambda name: (-levels[name], name)):
        imported = ", ".join(f"`{other}`" for other in sorted(graph[name])) or "nothing of `lit_gans`"
        lines.append(f"| {levels[name]} | `{name}` | {said[name]} | {imported} |")
    return "\n".join(lines)


if __name__ == "__main__":
    draw(sys.argv[1])
