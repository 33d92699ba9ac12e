"""Settings from YAML: typed, checked, and with the nearest key for a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
from perflint_runtime import TrainingSettings, load_settings
from perflint_runtime.settings import Settings

REPORTS = """
model:
  use_torch_compile: true
  torch_compile_mode: "default"  # Or "reduce-overhead" for faster iteration
  gradient_checkpointing: false
training:
  batch_size: 16
  compile_model: false
  learning_rate: 2e-5
  class_weights: [1, 2.5]
data:
  max_length: 512
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_reports_configuration_loads(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, REPORTS))
    assert settings.model.use_torch_compile
    assert settings.training.learning_rate == 2e-5  # YAML 1.1 takes it for text
    assert settings.training.class_weights == (1.0, 2.5)
    assert settings.training.epochs == TrainingSettings().epochs
    assert settings.data.max_length == 512


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, REPORTS), {"training.compile_model": True, "data.num_workers": 2})
    assert settings.training.compile_model
    assert settings.data.num_workers == 2
    assert settings.data.batch_size == 16


@pytest.mark.parametrize("text", ["", "model:\n", "training: {}\n"])
def test_nothing_said_is_the_default(text: str, tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, text)) == Settings()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"training": {"bach_size": 3}}, "unknown key `training.bach_size`; did you mean `data.batch_size`?"),
        ({"trainin": {}}, "unknown key `trainin`; did you mean `training`?"),
        ({"training": {"batch_size": "big"}}, "`training.batch_size` is 'big'; it has to be of type int"),
        ({"training": {"batch_size": True}}, "`training.batch_size` is True; it has to be of type int"),
        ({"training": {"learning_rate": "fast"}}, "`training.learning_rate` is 'fast'; it has to be a number"),
        ({"training": {"precision": "fp8"}}, "`training.precision` is 'fp8'; it has to be one of fp32, bf16, fp16"),
        ({"training": {"epochs": 0}}, "training.epochs is 0; it has to be at least 1"),
        ({"training": {"class_weights": 3}}, "`training.class_weights` is 3; it has to be a list"),
        ({"training": 3}, "`training` has to be a section of keys and values, not 3"),
        ([1], "expected sections (model, training, data), found list"),
    ],
)
def test_a_mistake_is_one_clear_line(document: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        load_settings(document)  # type: ignore[arg-type]  # that is the mistake
    assert str(caught.value) == message


def test_the_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "training: [")
    with pytest.raises(ValueError, match=r"config\.yaml: not valid YAML"):
        load_settings(path)
    path = written(tmp_path, "training: {epoch: 3}")
    with pytest.raises(ValueError, match=r"config\.yaml: unknown key `training.epoch`; did you mean `training.epochs`\?"):
        load_settings(path)


def test_an_override_without_a_section_is_refused() -> None:
    with pytest.raises(ValueError, match="override `epochs` has no section"):
        load_settings({}, {"epochs": 3})
