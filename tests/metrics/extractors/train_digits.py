"""Training of the digit classifier whose weights the package ships, `digits.safetensors`: a minute on two cores with
`python -m tests.metrics.extractors.train_digits`.

Every fifth digit in the file is held out: 4,000 digits for training, 1,000 for testing.
"""

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.data.sources.digits import Digits
from lit_gans.metrics.extractors.digits import WEIGHTS, DigitClassifier


def held_out(num: int) -> Tensor:
    """Returns the mask of the held-out images."""
    return torch.arange(num) % 5 == 4


@torch.no_grad()
def accuracy(classifier: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Returns the fraction of uint8 `images` that are classified correctly."""
    _, logits = classifier.eval()(images.float() / 255)
    return (logits.argmax(1) == labels).float().mean().item()


def _augmented(images: Tensor) -> Tensor:
    """Rotates by up to 10 degrees, scales by up to 10 % and shifts by up to 2 pixels."""
    num = len(images)
    angle = (torch.rand(num) - 0.5) * 0.35
    scale = 1 + (torch.rand(num) - 0.5) * 0.2
    matrix = torch.zeros(num, 2, 3)
    matrix[:, 0, 0] = matrix[:, 1, 1] = angle.cos() * scale
    matrix[:, 0, 1], matrix[:, 1, 0] = -angle.sin() * scale, angle.sin() * scale
    matrix[:, :, 2] = (torch.rand(num, 2) - 0.5) * 0.25
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def main(epochs: int = 25, batch_size: int = 64, seed: int = 0) -> float:
    """Trains and saves the classifier and returns its accuracy on the held-out digits."""
    torch.manual_seed(seed)
    data = Digits().dataset
    test = held_out(len(data))
    images, labels = data.images[~test].float() / 255, data.labels[~test]
    classifier = DigitClassifier()
    steps = epochs * (len(images) // batch_size)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    for epoch in range(epochs):
        classifier.train()
        for batch in torch.randperm(len(images)).split(batch_size)[: steps // epochs]:
            _, logits = classifier(_augmented(images[batch]))
            optimizer.zero_grad()
            functional.cross_entropy(logits, labels[batch]).backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}: {accuracy(classifier, data.images[test], data.labels[test]):.4f} of the held-out")
    save_file(classifier.state_dict(), WEIGHTS)
    return accuracy(classifier, data.images[test], data.labels[test])


if __name__ == "__main__":
    main()
