"""YAML of others runs no code."""

CODE = "!!python/object/apply:os.system ['touch executed']"


def test_a_run_yaml_of_others_runs_no_code(tmp_path, command):
    (tmp_path / "run.yaml").write_text(f"seed_everything: {CODE}\n")
    code, _, err = command("fit", "-c", str(tmp_path / "run.yaml"))
    assert code == 2
    assert "Problems parsing config" in err
    assert "Traceback" not in err
    assert not (tmp_path / "executed").exists()
