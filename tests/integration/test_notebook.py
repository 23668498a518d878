"""The notebook runs from top to bottom, offline, and shows what its text says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    """The notebook's code cells after they have run, as a user's would. An error in one of them is raised here."""
    notebook = nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    client = nbclient.NotebookClient(
        notebook, timeout=90, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("FASTPIPE_PRECISION")
        client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cells: list[Any], kind: str = "text/plain") -> Iterator[str]:
    """What the cells printed or displayed."""
    for output in (output for cell in cells for output in cell.outputs):
        if output.output_type == "stream" and output.name == "stdout":
            yield output.text
        elif output.output_type in ("execute_result", "display_data"):
            yield output.data.get(kind, "")


def test_nothing_is_said_but_what_transformers_and_tqdm_say(cells: list[Any]) -> None:
    said = "".join(o.text for cell in cells for o in cell.outputs if o.get("name") == "stderr")
    lines = [line.strip() for line in re.split(r"[\r\n]+", said)]
    theirs = ("Loading weights:", "Device set to use cpu", "from .autonotebook import tqdm")
    assert [line for line in lines if line and not line.startswith(theirs) and "IProgress not found" not in line] == []


def test_building_and_checking_displays_nothing(cells: list[Any]) -> None:
    built = next(cell for cell in cells if "fastpipe.pipeline(" in cell.source)
    assert [output.output_type for output in built.outputs if output.get("name") != "stderr"] == ["execute_result"]


def test_the_report_shows_as_a_table(cells: list[Any]) -> None:
    report = next(html for html in texts(cells, "text/html") if "compared on the built-in sample" in html)
    assert re.search("int8|bf16", report)  # which of them competes depends on the CPU
    assert "fp32" in report


def test_the_plan_shows_as_a_table_and_as_text(cells: list[Any]) -> None:
    assert any("<table><caption>Plan for feature-extraction</caption>" in html for html in texts(cells, "text/html"))
    assert any(re.search(r"^Plan for feature-extraction\n +backend +torch ", text) for text in texts(cells))


def test_it_is_an_instance_of_the_tasks_own_class(cells: list[Any]) -> None:
    assert "True" in list(texts(cells))


def test_results_of_a_list_have_the_shapes_of_single_calls(cells: list[Any]) -> None:
    shapes = ast.literal_eval(next(text for text in texts(cells) if "384" in text))
    assert [(first, last) for first, _, last in shapes] == [(1, 384)] * 5
    assert len({tokens for _, tokens, _ in shapes}) == 5, "texts of different lengths were padded"


def test_the_generator_is_read_as_far_ahead_as_the_text_says(cells: list[Any]) -> None:
    (read,) = re.findall(r"3 results, (\d+) inputs read\n", "".join(texts(cells)))
    assert 3 <= int(read) <= 8  # fewer where the machine is so busy that the source seems slow


def test_what_runs_is_near_fp32(cells: list[Any]) -> None:
    said = next(text for text in texts(cells) if "beside fp32 on 5 samples" in text)
    agreement = float(re.search(r"agreement ([01]\.\d+)", said)[1])
    assert 0.98 < agreement <= 1
