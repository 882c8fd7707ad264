"""FoundationVision/LlamaGen, tokenizer/tokenizer_image/vq_train.py: its script, with narrow networks; LPIPS is zero."""

import os
import sys
from functools import partial

from tests.audits.common import BATCH, BatchNormOfAllRanks, checkout, cpu, images, run, zero_loss

ROOT = checkout("llamagen")
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":
    out = os.environ["AUDIT_OUT"]
    options = {
        "data-path": images(48),
        "cloud-save-path": f"{out}/cloud",
        "results-dir": f"{out}/results",
        "codebook-size": 16,
        "codebook-embed-dim": 4,
        "disc-start": 0,
        "global-batch-size": BATCH,
        "num-workers": 0,
        "epochs": 9,
        "mixed-precision": "none",
        "log-every": 10**9,
        "ckpt-every": 10**9,
        "lr": 1e-3,
        "max-grad-norm": 0,
        "perceptual-weight": 0,
    }
    with cpu("autoencoder", "discriminator", claims_cuda=True):
        import dataset.augmentation
        import tokenizer.tokenizer_image.vq_loss as loss
        from tokenizer.tokenizer_image import vq_model
        from torchvision import transforms
        from torchvision.transforms import CenterCrop, RandomHorizontalFlip

        transforms.RandomHorizontalFlip = lambda: RandomHorizontalFlip(0.0)
        dataset.augmentation.random_crop_arr = lambda image, size: CenterCrop(32)(image)
        loss.LPIPS = zero_loss
        original = loss.VQLoss

        class Narrow(original):
            def __init__(self, **kwargs):
                super().__init__(**kwargs, disc_dim=8, disc_num_layers=2, disc_adaptive_weight=False)
                BatchNormOfAllRanks.converted(self.discriminator)

        loss.VQLoss = Narrow

        vq_model.Encoder, vq_model.Decoder = (partial(part, ch=32) for part in (vq_model.Encoder, vq_model.Decoder))

        def narrow(**kwargs):
            options = vq_model.ModelArgs(encoder_ch_mult=[1, 1], decoder_ch_mult=[1, 1], z_channels=8, **kwargs)
            model = vq_model.VQModel(options)
            model.quantize.codebook_used = model.quantize.codebook_used.detach()  # a copy to a GPU would not be a leaf
            return model

        vq_model.VQ_models["VQ-8"] = narrow
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        run(ROOT / "tokenizer/tokenizer_image/vq_train.py", *arguments, "--ema", "--vq-model", "VQ-8")
