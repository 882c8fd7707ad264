import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.unpaired import Unpaired
from tests.data.conftest import steps


def write(folder, values):
    """Writes a gray picture for each value, with a bright left edge."""
    folder.mkdir(parents=True, exist_ok=True)
    for value in values:
        pixels = np.full((16, 16, 3), value, np.uint8)
        pixels[:, :2] = 255
        Image.fromarray(pixels).save(folder / f"{value:03}.png")


A, B = range(0, 7), range(100, 104)


@pytest.fixture
def both(tmp_path):
    write(tmp_path / "A", A)
    write(tmp_path / "B", B)
    return tmp_path


def made(root, **settings):
    return Unpaired(str(root), **{"image_size": 16, "channels": 1, "batch_size": 2, "cache": str(root), **settings})


def values(images):
    return images[:, 0, 0, 8].tolist()


@pytest.mark.parametrize("placement", ["memory", "disk"])
def test_an_epoch_shows_the_larger_domain_once_and_the_other_one_again(both, placement):
    data = made(both, placement=placement, batch_size=1, num_workers=0)
    served = list(steps(data))
    assert all(step.keys() == {"input", "image"} for step in served)
    inputs, images = ([values(step[name])[0] for step in served] for name in ("input", "image"))
    assert sorted(inputs) == list(A)
    assert sorted(images[:4]) == list(B)
    assert len({*images[4:]}) == 3
    again = [(values(step["input"])[0], values(step["image"])[0]) for step in steps(data, range(1, 2))]
    assert again != [*zip(inputs, images, strict=True)]
    assert len({i - j for i, j in again}) > 2, "shuffled apart"


def test_the_other_direction_exchanges_the_domains(both):
    data = made(both, direction="b_to_a")
    served = list(steps(data))
    assert {*values(torch.cat([step["input"] for step in served]))} <= {*B}
    assert sorted(values(torch.cat([*data.real_batches(3)]))) == list(A)
    data.exchange_domains()
    assert values(torch.cat([*data.real_batches(3)])) == list(B)
    assert data.real_labels().tolist() == [0] * 4
    assert data.packed_path == made(both).packed_path, "packed once for both"
    assert values(data.unseen["image"]) == list(B), "all, as none are held out"


def test_each_image_is_mirrored_by_a_separate_bit(both):
    served = list(steps(made(both, flip=True, batch_size=1), range(2)))
    mirrored = [[step[name][0, 0, 0, -1].item() == 255 for step in served] for name in ("input", "image")]
    assert all(0 < sum(each) < len(each) for each in mirrored)
    assert mirrored[0] != mirrored[1]
    assert sorted(values(torch.cat([step["input"] for step in served[:7]]))) == list(A)
    plain = steps(made(both, batch_size=1))
    assert [values(step["input"]) for step in plain] == [values(step["input"]) for step in served[:7]]


@pytest.mark.parametrize("num_batches", [1, 3])
def test_ranks_take_their_parts_of_a_step(both, num_batches, monkeypatch):
    write(both / "A", range(7, 14))

    def rows(rank, num_ranks):
        data = made(both, batch_size=2 // num_ranks)
        monkeypatch.setattr(data, "_step", lambda: (data.batch_size, num_batches, rank, num_ranks))
        return [[*part.view(2, num_batches, -1)] for part in data._sampler()]

    alone, first, second = rows(0, 1), rows(0, 2), rows(1, 2)
    assert len(alone) == 14 // (2 * num_batches)
    for whole, one, other in zip(alone, first, second, strict=True):
        for ours, mine, theirs in zip(whole, one, other, strict=True):
            assert torch.equal(ours, torch.cat([mine, theirs], 1))


def test_it_resumes_in_an_epoch_and_not_on_other_folders(both):
    data = made(both)
    loader = data.train_dataloader()
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [*iterator]
    again = made(both).train_dataloader()
    again.load_state_dict(state)
    for ours, theirs in zip(again, rest, strict=True):
        assert torch.equal(ours["image"], theirs["image"])
    write(both / "B", [110])
    with pytest.raises(RefusedInput, match=r"trained on data with domains=\[4, 7\], but this run has \[5, 7\]"):
        made(both).train_dataloader().load_state_dict(state)


@pytest.mark.parametrize("layout", ["{split}{domain}", "{domain}/{split}"])
def test_held_out_images_are_in_separate_folders(tmp_path, layout):
    for split, offset in (("train", 0), ("test", 50)):
        for domain, some in (("A", A), ("B", B)):
            write(tmp_path / layout.format(split=split, domain=domain), [value + offset for value in some])
    data = made(tmp_path)
    assert values(data.unseen["input"]) == [value + 50 for value in A]
    assert values(data.unseen["image"]) == [value + 50 for value in B]
    assert sorted({*values(torch.cat([step["input"] for step in steps(data, range(2))]))})[-1] < 50
    data.exchange_domains()
    assert values(data.unseen["input"]) == [value + 50 for value in B]


def test_refusals(tmp_path):
    write(tmp_path / "A", A)
    with pytest.raises(RefusedInput, match="it contains no folder B or trainB: unpaired images are in the folders"):
        made(tmp_path)
    write(tmp_path / "B", B)
    with pytest.raises(RefusedInput, match="class_weights: the images have no classes"):
        made(tmp_path, class_weights="balanced")


def test_damaged_images_are_left_out_of_their_domain(both, caplog):
    (both / "A" / "003.png").write_bytes(b"")
    data = made(both, on_error="skip")
    assert values(data.unseen["input"]) == [0, 1, 2, 4, 5, 6]
    assert values(data.unseen["image"]) == list(B)
    assert "1 left out" in caplog.text


@pytest.mark.parametrize("domain", ["A", "B"])
def test_a_domain_without_a_readable_image_is_refused(both, domain):
    for path in (both / domain).iterdir():
        path.write_bytes(b"")
    data = made(both, on_error="skip")
    with pytest.raises(RefusedInput, match=f"none of the images of domain {domain} can be read: .*jsonl lists the rea"):
        data.train_dataloader()
