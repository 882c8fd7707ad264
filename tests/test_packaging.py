"""The wheel of the source distribution holds everything and works from any folder; importing stays light."""

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec, module_from_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, capture_output=True, text=True)
    [source] = folder.glob("*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation", "-q", "-w", folder]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_module_and_yaml_file(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    files = [path for path in (ROOT / "lit_gans").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    wanted = {str(path.relative_to(ROOT)) for path in files}
    wanted |= {f"lit_gans/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert "lit_gans/conf/experiment/dcgan_digits.yaml" in wanted
    assert wanted <= inside, wanted - inside


def test_the_wheel_composes_and_loads_its_weights_from_another_folder(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import lit_gans; from lit_gans import compose; from lit_gans.metrics.extractors.digits import DigitsExtractor;"
        "print(lit_gans.__file__, compose('experiment=dcgan_digits').model.latent_dim); DigitsExtractor()"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert done.stdout.split()[-1] == "100"


def test_importing_a_gan_brings_little_beside_lightning():
    def modules(code: str) -> set[str]:
        command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
        return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())

    more = {name.partition(".")[0] for name in modules("from lit_gans import DCGAN") - modules("import lightning")}
    for_the_cli = {"jsonargparse", "typeshed_client"}  # which Lightning's own CLI reads optimizers by
    assert more <= {"lit_gans", "torch", "safetensors", "jaxtyping", "wadler_lindig"} | for_the_cli, "no other package"


def test_every_public_name_is_there():
    import lit_gans
    from lit_gans.config.registry import gans

    for name in lit_gans.__all__:
        assert getattr(lit_gans, name) is not None
    own = [cls for cls in gans().values() if cls.__module__.startswith("lit_gans.")]
    assert {cls.__name__ for cls in own} <= {*lit_gans.__all__}, "what completion and type checkers know"
    for cls in own:
        assert getattr(lit_gans, cls.__name__) is cls
    spec = find_spec("lit_gans")
    spec.loader.exec_module(untouched := module_from_spec(spec))
    assert {*lit_gans.__all__} <= {*dir(untouched)}, "for completion, also what has not been imported yet"
    for name, instead in (
        ("DCGANN", "; did you mean 'DCGAN'\\?"),
        ("train", r"; use .*build\(compose"),
        ("_nothing", ""),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'{instead}"):
            getattr(lit_gans, name)
