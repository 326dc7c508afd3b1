"""Settings are read strictly."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from lightgc2n.config import parse_overrides, read_settings, read_toml, setting
from lightgc2n.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    people: int = setting(3, at_least=1, at_most=5, help="How many.")
    rate: float = setting(0.5, at_least=0.0, help="How fast.")
    mode: str = setting("slow", choices=("slow", "fast"), help="How.")
    loud: bool = setting(False, help="Whether.")


def test_defaults_and_changes() -> None:
    assert read_settings(Example, {}, "test") == Example()
    assert read_settings(Example, {"people": 2, "rate": 1, "mode": "fast"}, "test") == Example(
        people=2, rate=1.0, mode="fast"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"peple": 2}, "unknown setting 'peple'. Did you mean 'people'? Known: loud, mode, people, rate"),
        ({"people": 0}, "people must be at least 1, found 0"),
        ({"people": 6}, "people must be at most 5, found 6"),
        ({"people": 2.0}, "people must be int, found 2.0"),
        ({"people": True}, "people must be int, found True"),
        ({"loud": 1}, "loud must be bool, found 1"),
        ({"rate": float("nan")}, "rate must be a finite number, found nan"),
        ({"rate": float("inf")}, "rate must be a finite number, found inf"),
        ({"rate": "x"}, "rate must be float, found 'x'"),
        ({"mode": "fsat"}, "Did you mean 'fast'?"),
    ],
)
def test_errors_name_the_setting_and_suggest_the_nearest(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings(Example, values, "file.toml")
    assert str(caught.value).startswith("file.toml: ")
    assert message in str(caught.value)


def test_overrides_are_read_as_toml() -> None:
    actual = parse_overrides(["a.x=1", "a.y=2.5", "a.z=true", "b.name=plain text", 'b.other="quoted"'])
    assert actual == {"a": {"x": 1, "y": 2.5, "z": True}, "b": {"name": "plain text", "other": "quoted"}}


@pytest.mark.parametrize("pair", ["x=1", "a.x", "=1", ".x=1", "a.=1"])
def test_an_override_without_its_parts_is_refused(pair: str) -> None:
    with pytest.raises(SettingError, match=r"expected TABLE\.NAME=VALUE"):
        parse_overrides([pair])


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("a = [1\n")
    with pytest.raises(SettingError, match=r"bad\.toml: not a TOML file"):
        read_toml(tmp_path / "bad.toml")
    with pytest.raises(SettingError, match="no such file"):
        read_toml(tmp_path / "none.toml")
