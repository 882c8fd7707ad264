"""YAML of others runs no code, and damage ends in a sentence."""

import pytest

from lit_gans.callbacks.evaluation import _read

CODE = "!!python/object/apply:os.system ['touch executed']"


def test_a_run_yaml_of_others_runs_no_code(tmp_path, command):
    (tmp_path / "run.yaml").write_text(f"seed_everything: {CODE}\n")
    code, _, err = command("fit", "-c", str(tmp_path / "run.yaml"))
    assert code == 2
    assert "Problems parsing config" in err
    assert "Traceback" not in err
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("text", ["{", 100_000 * "[", "[1]", "9" * 5000])
def test_a_damaged_protocol_is_named_and_written_again(tmp_path, caplog, text):
    path = tmp_path / "protocol.json"
    path.write_text('{"metric/fid": {"num": 3}}')
    assert _read(path) == {"metric/fid": {"num": 3}}
    path.write_text(text)
    assert _read(path) == {}
    assert "protocol.json is damaged and is written again" in caplog.text
