from lit_gans.common.errors import RefusedInput, install_command, nearest


def test_the_nearest_name_else_all_of_them_in_order_and_once():
    assert nearest("n_critc", ["seed", "n_critic", "n_critics_total"]) == "did you mean 'n_critic'?"
    assert nearest("xyz", ["b", "a", "b"]) == "valid names: a, b."
    assert nearest("xyz", iter(["b", "a"])) == "valid names: a, b."
    assert nearest("xyz", []) == "nothing can be set there."


def test_the_command_that_installs_an_extra_is_quoted_for_a_shell():
    assert install_command("wandb") == 'install it with: python -m pip install "lit-gans[wandb]"'


def test_a_refusal_is_no_value_error_which_jsonargparse_would_bury():
    assert not issubclass(RefusedInput, ValueError | TypeError)
    assert str(RefusedInput("a sentence")) == "a sentence"
