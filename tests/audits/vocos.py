"""gemelo-ai/vocos, vocos/experiment.py: `VocosExp` with small networks, under Lightning 1.9; audio is random."""

import sys

from torch import nn
from torch.optim.lr_scheduler import ConstantLR

from tests.audits.common import BATCH, absent, checkout, cpu, random_rows
from tests.audits.lightning1 import fit

sys.path.insert(0, str(checkout("vocos")))

if __name__ == "__main__":
    absent("encodec")
    with cpu("discriminators", "generator"):
        from vocos import experiment

        class Generator(nn.Sequential):
            def __init__(self):
                super().__init__(nn.Conv1d(1, 8, 9, 4, 4), nn.SiLU(), nn.ConvTranspose1d(8, 1, 4, 4))

            def forward(self, audio, **kwargs):
                return super().forward(audio.unsqueeze(1)).squeeze(1)

        class Same(nn.Identity):
            def forward(self, audio, **kwargs):
                return audio

        class Distance(nn.Module):
            def __init__(self, **kwargs):
                super().__init__()

            def forward(self, generated, audio):
                return (generated - audio).abs().mean()

        class Discriminator(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Conv1d(1, 8, 9, 2), nn.Conv1d(8, 1, 9, 2)])

            def scores(self, audio):
                first = self.layers[0](audio.unsqueeze(1)).relu()
                return self.layers[1](first).flatten(1), [first]

            def forward(self, y, y_hat, **kwargs):
                (real, real_maps), (fake, fake_maps) = self.scores(y), self.scores(y_hat)
                return [real], [fake], [real_maps], [fake_maps]

        experiment.MultiPeriodDiscriminator = experiment.MultiResolutionDiscriminator = Discriminator
        experiment.MelSpecReconstructionLoss = Distance
        experiment.transformers.get_cosine_schedule_with_warmup = lambda optimizer, **_: ConstantLR(optimizer, 1.0)
        module = experiment.VocosExp(nn.Identity(), nn.Identity(), nn.Identity(), 8000, 1e-3)
        experiment.VocosExp.global_step = 1  # not 0, because it logs at step 0
        module.backbone = Generator()
        module.feature_extractor, module.head = Same(), nn.Identity()
        module.log = lambda *args, **kwargs: None
        fit(module, random_rows(BATCH * 6, 64) - 0.5)
