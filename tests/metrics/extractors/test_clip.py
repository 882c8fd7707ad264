"""CLIP: its preprocessing is that of CMMD's code, its features those of a plain transformer and of torch-fidelity."""

import hashlib
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch_fidelity.feature_extractor_clip import MODEL_METADATA, FeatureExtractorCLIP

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors import weights as reading
from lit_gans.metrics.extractors.clip import SHA256, CLIPExtractor
from tests.metrics.extractors.transformer import drawn, images, inputs, norm, patches_of, quick_gelu, transformed

WIDTH, DEPTH, SIZE, FEATURES = 64, 2, 28, 8  # with a width of 64, CLIP has one attention head


class Small(CLIPExtractor):
    num_features, image_size, width, depth = FEATURES, SIZE, WIDTH, DEPTH


def shapes(width=WIDTH, depth=DEPTH, size=SIZE, features=FEATURES, patch=14):
    """Names and shapes of the tensors in OpenAI's files, of which the text network is left out but for its width."""
    found = {"class_embedding": (width,), "positional_embedding": ((size // patch) ** 2 + 1, width)}
    found |= {"proj": (width, features), "conv1.weight": (width, 3, patch, patch)}
    for block in (f"transformer.resblocks.{index}" for index in range(depth)):
        found |= {f"{block}.attn.in_proj_weight": (3 * width, width), f"{block}.attn.in_proj_bias": (3 * width,)}
        for layer, (given, returned) in {
            "attn.out_proj": (width, width),
            "mlp.c_fc": (width, 4 * width),
            "mlp.c_proj": (4 * width, width),
        }.items():
            found |= {f"{block}.{layer}.weight": (returned, given), f"{block}.{layer}.bias": (returned,)}
        found |= {f"{block}.ln_{layer}.{name}": (width,) for layer in (1, 2) for name in ("weight", "bias")}
    found |= {f"ln_{layer}.{name}": (width,) for layer in ("pre", "post") for name in ("weight", "bias")}
    return {f"visual.{name}": shape for name, shape in found.items()} | {"text_projection": (4, features)}


def weights_of(**sizes):
    return {name: tensor.half() for name, tensor in drawn(shapes(**sizes), 0).items()}


class Tree(nn.Module):
    """Module whose state dict has given names."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def tree(state):
    root = Tree()
    for name, tensor in state.items():
        *parents, last = name.split(".")
        module = root
        for parent in parents:
            if not hasattr(module, parent):
                module.add_module(parent, Tree())
            module = getattr(module, parent)
        module.register_parameter(last, nn.Parameter(tensor, requires_grad=False))
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file in the format of OpenAI's: an archive of TorchScript with numbers in float16."""
    path = tmp_path_factory.mktemp("weights") / "clip.pt"
    with warnings.catch_warnings(action="ignore"):
        torch.jit.script(tree(weights_of())).save(path)
    return path


@pytest.fixture(scope="module")
def extractor(weights):
    return Small(str(weights), sha256=hashlib.sha256(weights.read_bytes()).hexdigest())


def by_cmmd(image):
    """As in cmmd/io_util.py and the normalization of CLIP, with numpy."""
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    width, height = picture.size
    side = min(width, height)
    top, left = (height - side) // 2, (width - side) // 2
    picture = picture.crop((left, top, left + side, top + side)).resize((SIZE, SIZE), resample=Image.BICUBIC)
    mean = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
    std = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
    return torch.from_numpy((np.asarray(picture).astype(np.float32) / 255 - mean) / std).permute(2, 0, 1)


@pytest.mark.parametrize("size", [(8, 8), (SIZE, SIZE), (64, 64), (65, 40), (33, 100)])
def test_the_network_s_input_is_that_of_cmmd_s_code_to_the_bit(extractor, size):
    pixels = images(3, *size)
    assert torch.equal(inputs(extractor, pixels), torch.stack([*map(by_cmmd, pixels)]))


def plain_features(state, pixels):
    """Returns the embeddings of CLIP (Radford et al. 2021), in float64."""
    state = {name.removeprefix("visual."): tensor.double() for name, tensor in state.items()}

    def pair(name):
        return state[f"{name}.weight"], state[f"{name}.bias"]

    def block(name):
        layers = {"proj": "attn.out_proj", "fc1": "mlp.c_fc", "fc2": "mlp.c_proj", "norm1": "ln_1", "norm2": "ln_2"}
        pairs = {key: pair(f"{name}.{value}") for key, value in layers.items()}
        qkv = state[f"{name}.attn.in_proj_weight"], state[f"{name}.attn.in_proj_bias"]
        return pairs | {"qkv": qkv, "scale1": 1, "scale2": 1}

    tokens = patches_of(torch.stack([*map(by_cmmd, pixels)]).double(), state["conv1.weight"])
    tokens = torch.cat([state["class_embedding"].expand(len(pixels), 1, -1), tokens], 1)
    tokens = norm(tokens + state["positional_embedding"], pair("ln_pre"), 1e-5)
    blocks = map(block, (f"transformer.resblocks.{index}" for index in range(DEPTH)))
    tokens = transformed(tokens, blocks, WIDTH // 64, quick_gelu, 1e-5)
    return norm(tokens[:, 0], pair("ln_post"), 1e-5) @ state["proj"]


def test_features_are_those_of_a_plain_transformer(extractor):
    pixels = images(3, 40, 60)
    expected = plain_features(weights_of(), pixels)
    found, logits = extractor(pixels)
    assert logits.shape == (3, 0)
    assert expected.std(0).mean() > 0.01
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(extractor(pixels)[0], found), "of full precision"


@pytest.mark.filterwarnings("ignore:.*torch.jit.load.* is deprecated:FutureWarning")
def test_features_of_images_that_are_not_resized_are_torch_fidelity_s(weights, extractor):
    theirs = FeatureExtractorCLIP("clip-vit-l-14-336px", ["clip"], str(weights))
    pixels = images(3, SIZE, SIZE)
    torch.testing.assert_close(extractor(pixels)[0], theirs(pixels)[0], rtol=0, atol=1e-5)


def test_gray_is_repeated_and_batches_do_not_matter(extractor):
    pixels = images(18, 32, 32, channels=1)
    found = extractor(pixels)[0]
    torch.testing.assert_close(found, torch.cat([extractor(one.repeat(1, 3, 1, 1))[0] for one in pixels.split(5)]))
    assert not extractor.train().training
    assert not any(parameter.requires_grad for parameter in extractor.parameters())


def test_the_file_is_checked_and_scripts_are_read_only_with_a_known_sum(weights, extractor):
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert extractor.file_sha256 == digest
    with pytest.raises(RefusedInput, match=f"has the sha256 {digest}, expected {SHA256}: download it again"):
        CLIPExtractor(str(weights))
    with pytest.raises(RefusedInput, match=r"is a TorchScript archive, which can execute code, .* save its state dict"):
        Small(str(weights), sha256=None)


def test_a_state_dict_of_ones_own_is_not_rounded(tmp_path):
    state = drawn(shapes(), 1)
    torch.save(state, tmp_path / "own.pt")
    network = Small(str(tmp_path / "own.pt"), sha256=None).network
    assert torch.equal(network.state_dict()["proj"], state["visual.proj"])


def test_a_missing_file_says_what_to_fetch_and_where_to_put_it(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    url = rf"https://openaipublic\.azureedge\.net/clip/models/{SHA256}/ViT-L-14-336px\.pt"
    place = tmp_path / f"hub/checkpoints/clip-vit-l-14-336px-{SHA256}.pt"
    with pytest.raises(RefusedInput, match=f"the CLIP weights are missing: download {url} to {place}, or set its path"):
        CLIPExtractor()


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (drawn(shapes(768, 1, 224, 8, 32), 0), "ViT-B/32 at 224"),
        (drawn(shapes(1024, 1, 224, 8, 14), 0), "ViT-L/14 at 224"),
        ({"visual.layer1.0.conv1.weight": torch.zeros(64, 64, 1, 1)}, "a CLIP with a ResNet"),
        ({"features": torch.zeros(3)}, "no CLIP of OpenAI, whose tensors include visual.conv1.weight"),
    ],
)
def test_another_clip_is_named(tmp_path, state, name):
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(RefusedInput, match=rf"other\.pt: this is {name}.*; CMMD needs ViT-L/14 at 336\."):
        CLIPExtractor(str(tmp_path / "other.pt"), sha256=None)


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_openai_s_other_files_are_named_by_their_sums(tmp_path, monkeypatch, sha256):
    (tmp_path / "other.pt").touch()

    class Digest:
        def __init__(self, known):
            self.known = known

        def hexdigest(self):
            return MODEL_METADATA[self.known]["hash"]

    for known, name in {"clip-vit-b-32": "ViT-B-32", "clip-rn50x4": "RN50x4", "clip-vit-l-14": "ViT-L-14"}.items():
        monkeypatch.setattr(reading.hashlib, "file_digest", lambda *_, known=known: Digest(known))
        with pytest.raises(RefusedInput, match=rf"this is CLIP {name}; CMMD needs ViT-L/14 at 336\."):
            CLIPExtractor(str(tmp_path / "other.pt"), sha256)


def test_missing_tensors_are_refused(tmp_path):
    state = drawn(shapes(), 0)
    del state["visual.ln_post.bias"]
    torch.save(state, tmp_path / "own.pt")
    with pytest.raises(RefusedInput, match=r"own\.pt does not fit CLIP ViT-64/14 at 28"):
        Small(str(tmp_path / "own.pt"), sha256=None)


@pytest.mark.slow  # 0.6 GB of weights
def test_the_file_of_the_paper_has_the_shapes_of_vit_l_14(tmp_path):
    state = {name: torch.zeros(shape).half() for name, shape in shapes(1024, 24, 336, 768).items()}
    state["visual.ln_post.bias"][3], state["visual.proj"][3] = 1, torch.arange(768)
    torch.save(state, tmp_path / "large.pt")
    features, _ = CLIPExtractor(str(tmp_path / "large.pt"), sha256=None)(images(1, 32, 32))
    assert features[0].tolist() == [*range(768)]
