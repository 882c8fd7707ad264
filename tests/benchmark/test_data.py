import json

from lit_gans.benchmark.data import data


def test_smoke_measures_everything_and_writes_it(tmp_path, capsys):
    result = data(preset="smoke", rounds=1, steps=2, output=str(tmp_path / "data.json"), device="cpu")
    assert json.loads((tmp_path / "data.json").read_text()) == json.loads(json.dumps(result))
    assert result["serving"]["ratio"]["median"] > 0
    assert result["packing"]["images_per_second"].keys() == {"lit_gans", "one process"}
    assert 0 < result["waiting"]["share"] < 1
    assert result["waiting"]["placement"] == "memory"
    few, many = result["memory_of_packing"].values()
    assert 0 <= few < 2**27  # so few pictures may be packed between two looks
    assert 0 <= many < 2**27
    assert "waits" in capsys.readouterr().out
