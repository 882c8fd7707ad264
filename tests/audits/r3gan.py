"""brownvc/R3GAN, training/training_loop.py: its function, with narrow networks."""

from tests.audits.common import LOCAL_BATCH
from tests.audits.nvlabs import train

if __name__ == "__main__":
    narrow = {
        "WidthPerStage": [8, 8, 8, 8],
        "CardinalityPerStage": [2, 2, 2, 2],
        "BlocksPerStage": [1, 1, 1, 1],
        "ExpansionFactor": 1,
        "FP16Stages": [],
    }
    optimizer = {"class_name": "torch.optim.Adam", "betas": [0.0, 0.0], "eps": 1e-8}
    constant = {"base_value": 0.001, "total_nimg": 10**6, "final_value": 0.001}
    train(
        "r3gan",
        ("discriminator", "generator"),
        G_kwargs={"class_name": "training.networks.Generator", "NoiseDimension": 8, **narrow},
        D_kwargs={"class_name": "training.networks.Discriminator", **narrow},
        G_opt_kwargs=optimizer,
        D_opt_kwargs=optimizer,
        lr_scheduler=constant,
        beta2_scheduler=constant | {"base_value": 0.9, "final_value": 0.9},
        gamma_scheduler=constant | {"base_value": 1.0, "final_value": 1.0},
        ema_scheduler=constant,
        aug_scheduler=constant | {"base_value": 0.0, "final_value": 0.0},
        loss_kwargs={"class_name": "training.loss.R3GANLoss"},
        g_batch_gpu=LOCAL_BATCH,
        d_batch_gpu=LOCAL_BATCH,
    )
