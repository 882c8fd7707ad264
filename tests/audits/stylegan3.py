"""NVlabs/stylegan3, training/training_loop.py: its function, with the narrow networks of StyleGAN2."""

from tests.audits.common import LOCAL_BATCH
from tests.audits.nvlabs import train

if __name__ == "__main__":
    narrow = {"channel_base": 256, "channel_max": 8, "num_fp16_res": 0}
    optimizer = {"class_name": "torch.optim.Adam", "lr": 0.002, "betas": [0.0, 0.99], "eps": 1e-8}
    generator = {"class_name": "training.networks_stylegan2.Generator", "z_dim": 8, "w_dim": 8}
    discriminator = {"class_name": "training.networks_stylegan2.Discriminator", "block_kwargs": {}}
    train(
        "stylegan3",
        ("generator", "discriminator"),
        G_kwargs={**generator, "mapping_kwargs": {"num_layers": 2}, **narrow},
        D_kwargs={**discriminator, "epilogue_kwargs": {"mbstd_group_size": 1}, "mapping_kwargs": {}, **narrow},
        G_opt_kwargs=optimizer,
        D_opt_kwargs=optimizer,
        loss_kwargs={"class_name": "training.loss.StyleGAN2Loss", "r1_gamma": 1.0, "style_mixing_prob": 0},
        D_reg_interval=2,
        batch_gpu=LOCAL_BATCH,
    )
