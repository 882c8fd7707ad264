"""DINOv2: its preprocessing is torchvision's on Pillow images, its features those of a plain transformer."""

import hashlib
import sys

import pytest
import torch
from torchvision.transforms import Compose, InterpolationMode, Normalize, Resize, ToTensor
from torchvision.transforms.functional import to_pil_image

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.dinov2 import SHA256, DINOv2Extractor
from tests.metrics.extractors.transformer import drawn, gelu, images, inputs, norm, patches_of, transformed

WIDTH, DEPTH, HEADS = 16, 2, 2


class Small(DINOv2Extractor):
    num_features, depth, num_heads = WIDTH, DEPTH, HEADS


def shapes(width=WIDTH, depth=DEPTH):
    """Names and shapes of the tensors in Meta's files."""
    found = {"cls_token": (1, 1, width), "pos_embed": (1, 37 * 37 + 1, width), "mask_token": (1, width)}
    found |= {"patch_embed.proj.weight": (width, 3, 14, 14), "patch_embed.proj.bias": (width,)}
    sizes = {"attn.qkv": (width, 3 * width), "attn.proj": (width, width)}
    sizes |= {"mlp.fc1": (width, 4 * width), "mlp.fc2": (4 * width, width)}
    for block in (f"blocks.{index}" for index in range(depth)):
        for layer in ("norm1", "norm2"):
            found |= {f"{block}.{layer}.weight": (width,), f"{block}.{layer}.bias": (width,)}
        for layer, (given, returned) in sizes.items():
            found |= {f"{block}.{layer}.weight": (returned, given), f"{block}.{layer}.bias": (returned,)}
        found |= {f"{block}.ls1.gamma": (width,), f"{block}.ls2.gamma": (width,)}
    return found | {"norm.weight": (width,), "norm.bias": (width,)}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "dinov2.pth"
    torch.save(drawn(shapes(), 0), path)
    return path


@pytest.fixture(scope="module")
def extractor(weights):
    return Small(str(weights), sha256=None)


def by_torchvision(image):
    """As in dgm_eval/models/dinov2.py."""
    steps = [Resize((224, 224), InterpolationMode.BICUBIC), ToTensor()]
    return Compose([*steps, Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])(to_pil_image(image))


@pytest.mark.parametrize("size", [(32, 32), (224, 224), (300, 260), (100, 500)])
def test_the_network_s_input_is_torchvision_s_to_the_bit(extractor, size):
    pixels = images(3, *size)
    assert torch.equal(inputs(extractor, pixels), torch.stack([*map(by_torchvision, pixels)]))


def cubic(x):
    """Keys' kernel with a = -0.75, as in torch's bicubic interpolation."""
    x = abs(x)
    if x <= 1:
        return 1.25 * x**3 - 2.25 * x**2 + 1
    return -0.75 * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def interpolation():
    """Returns the matrix (16, 37) that interpolates positions as Meta's code: 37 / 16.1 apart, without antialiasing."""
    matrix = torch.zeros(16, 37).double()
    for row in range(16):
        center = (row + 0.5) * 37 / 16.1 - 0.5
        for tap in range(int(center) - 1, int(center) + 3):
            matrix[row, min(max(tap, 0), 36)] += cubic(center - tap)
    return matrix


def plain_features(state, pixels):
    """Returns the features of DINOv2 (Oquab et al. 2023), in float64."""
    state = {name: tensor.double() for name, tensor in state.items()}

    def pair(name):
        return state[f"{name}.weight"], state[f"{name}.bias"]

    def block(name):
        layers = {"qkv": "attn.qkv", "proj": "attn.proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}
        pairs = {key: pair(f"{name}.{value}") for key, value in layers.items()}
        pairs |= {key: pair(f"{name}.{key}") for key in ("norm1", "norm2")}
        return pairs | {"scale1": state[f"{name}.ls1.gamma"], "scale2": state[f"{name}.ls2.gamma"]}

    filters, bias = pair("patch_embed.proj")
    inputs = torch.stack([*map(by_torchvision, pixels)]).double()
    tokens = patches_of(inputs, filters) + bias
    grid = state["pos_embed"][0, 1:].view(37, 37, -1)
    positions = torch.einsum("yi,xj,ijw->yxw", interpolation(), interpolation(), grid).flatten(0, 1)
    first = (state["cls_token"] + state["pos_embed"][:, :1]).expand(len(pixels), -1, -1)
    tokens = torch.cat([first, tokens + positions], 1)
    tokens = transformed(tokens, map(block, (f"blocks.{index}" for index in range(DEPTH))), HEADS, gelu, 1e-6)
    return norm(tokens[:, 0], pair("norm"), 1e-6)


def test_features_are_those_of_a_plain_transformer(weights, extractor):
    pixels = images(3, 40, 60)
    expected = plain_features(torch.load(weights), pixels)
    found, logits = extractor(pixels)
    assert logits.shape == (3, 0)
    assert expected.std(0).mean() > 0.01
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(extractor(pixels)[0], found), "of full precision"


def test_gray_is_repeated_and_batches_do_not_matter(extractor):
    pixels = images(18, 32, 32, channels=1)
    found = extractor(pixels)[0]
    torch.testing.assert_close(found, torch.cat([extractor(one.repeat(1, 3, 1, 1))[0] for one in pixels.split(5)]))
    assert extractor(pixels[:0])[0].shape == (0, WIDTH)
    assert not extractor.train().training
    assert not any(parameter.requires_grad for parameter in extractor.parameters())


def test_fd_dinov2_is_the_distance_of_its_features(extractor):
    real, fake = images(40, 32, 32), images(30, 32, 32, seed=5) // 2
    evaluator = Evaluator(extractor, {"fid": FrechetInceptionDistance()}, 30)
    evaluator.add_real(real)
    by_hand = FrechetInceptionDistance(extractor)
    by_hand.update(real, real=True)
    by_hand.update(fake, real=False)
    values = evaluator.measure(fake)
    assert values == {"metric/fid_dinov2": pytest.approx(by_hand.compute().item(), rel=1e-6)}
    assert values["metric/fid_dinov2"] > 0.01


def test_the_file_is_checked(weights, extractor):
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert extractor.file_sha256 == digest
    with pytest.raises(RefusedInput, match=f"has the sha256 {digest}, expected {SHA256}: download it again"):
        DINOv2Extractor(str(weights))
    with pytest.raises(RefusedInput, match=r"metrics.extractor.sha256=abc must have 64 hexadecimal digits"):
        DINOv2Extractor(str(weights), sha256="abc")


def test_a_missing_file_says_what_to_fetch_and_where_to_put_it(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    url = r"https://dl\.fbaipublicfiles\.com/dinov2/dinov2_vitl14/dinov2_vitl14_pretrain\.pth"
    place = tmp_path / "hub/checkpoints/dinov2_vitl14_pretrain.pth"
    with pytest.raises(RefusedInput, match=f"the DINOv2 weights are missing: download {url} to {place}, or set"):
        DINOv2Extractor()


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(RefusedInput, match=r'the package timm is missing: .*\[dinov2\]"$'):
        DINOv2Extractor()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pos_embed": torch.zeros(1, 10, 768)}, "contains a ViT of width 768: FD-DINOv2 needs ViT-L/14 of width 16"),
        ({"register_tokens": torch.zeros(1, 4, WIDTH)}, "a ViT of width 16 with registers: FD-DINOv2 needs ViT-L/14"),
        ({"pos_embed": None}, "contains no DINOv2: FD-DINOv2 needs ViT-L/14"),
        ({"norm.bias": None}, r"does not contain the weights of DINOv2 ViT-L/14: missing key\(s\) .*norm\.bias"),
        ({"blocks.2.norm1.bias": torch.zeros(16)}, "does not contain the weights of DINOv2 ViT-L/14: "),
    ],
)
def test_another_network_is_named(tmp_path, change, message):
    state = drawn(shapes(), 0) | change
    torch.save({name: tensor for name, tensor in state.items() if tensor is not None}, tmp_path / "other.pth")
    with pytest.raises(RefusedInput, match=message):
        Small(str(tmp_path / "other.pth"), sha256=None)


@pytest.mark.slow  # 1.2 GB of weights
def test_the_file_of_the_paper_has_the_shapes_of_vit_l_14(tmp_path):
    state = {name: torch.zeros(shape) for name, shape in shapes(1024, 24).items()}
    torch.save(state | {"norm.bias": torch.arange(1024.0)}, tmp_path / "large.pth")
    features, _ = DINOv2Extractor(str(tmp_path / "large.pth"), sha256=None)(images(1, 32, 32))
    assert features[0].tolist() == [*range(1024)]
