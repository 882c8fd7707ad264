"""Exit codes of `python -m lit_gans.check`, in this process."""

import pytest

from lit_gans.check import __main__ as command
from lit_gans.check.findings import Finding


@pytest.mark.parametrize(("end", "expected"), [("0", 1), ("", 1), ("None", 1), ("3", 3), ("'text'", "text")])
def test_a_script_that_exits_without_an_error_does_not_hide_the_faults(tmp_path, monkeypatch, end, expected):
    monkeypatch.setattr(command.sys, "argv", ["lit_gans.check"])
    monkeypatch.setattr(command.sys, "path", [*command.sys.path])
    monkeypatch.setattr(command.check_ranks, "faults", [Finding("kind", "where", "what", "remedy")])
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.exit({end})\n")
    try:
        code = command.main(str(script), [], False, 1, 1.0, 0, "")
    except SystemExit as ended:
        code = ended.code
    assert code == expected
