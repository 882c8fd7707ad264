import pytest

from lit_gans.errors import RefusedInput


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_critic": 0}, "n_critic=0 must be at least 1"),
        ({"accumulate_gradients": 0}, "accumulate_gradients=0"),
        ({"latent_dim": 0}, "latent_dim=0"),
        ({"clip_gradients": 0.0}, "clip_gradients=0.0 must be greater than 0"),
        ({"r1_gamma": -1.0}, "r1_gamma=-1.0"),
        ({"generator_width": 0}, "generator_width=0"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"image_size": 17}, "power of two"),
    ],
)
def test_settings(tiny_gan, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        tiny_gan(**settings)


def test_data_and_model_must_have_the_same_sizes(tiny_gan, random_images, fit):
    with pytest.raises(RefusedInput, match="the data has image_size=32 and the model image_size=16"):
        fit(tiny_gan(), random_images(image_size=32), max_steps=1)
    with pytest.raises(RefusedInput, match="channels=3"):
        fit(tiny_gan(), random_images(channels=3), max_steps=1)
