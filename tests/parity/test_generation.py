"""Models that generate: the same tokens as transformers', in fp32, however they are called."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer

import fastpipe
from fastpipe.backends import lean
from fastpipe.errors import InputError, InputTooLongError, OptionError, UnsupportedOnEngineError
from fastpipe.pipelines.generators import recordings
from tests.compare import assert_same
from tests.conftest import V5
from tests.models import Models

Make = Callable[..., Any]
ENGINE = "torch" if V5 else "openvino"  # what "auto" gives here: transformers 5 has no exporter for these
DECODERS = ["gpt2", "llama", "qwen2", "gemma"]
REWRITERS = [("text2text-generation", "t5"), ("summarization", "bart"), ("translation", "marian")]
PROMPTS = ["the old mill", "a", "a small river runs past the old mill, and", "the old mill", "and the mill still turns"]
GREEDY = {"max_new_tokens": 8, "do_sample": False}
WHISPERS = ["auto"] if V5 else ["auto", "onnxruntime"]  # what hears with Whisper
before_5 = pytest.mark.skipif(V5, reason="transformers 5 has no such task, or no engine that generates")


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "options",
    [
        GREEDY,
        {**GREEDY, "return_full_text": False, "batch_size": 3},
        {**GREEDY, "return_tensors": True},
        {"max_new_tokens": 5, "do_sample": False, "num_beams": 3, "num_return_sequences": 2},
        {"max_new_tokens": 5, "do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"max_new_tokens": None, "max_length": 20, "do_sample": False},
    ],
    ids=str,
)
def test_the_same_tokens(fp: Make, ref: Make, name: str, options: dict[str, Any]) -> None:
    """FP-21: lists are batched inside, and each prompt says what it says alone; the tokenizer has no pad token."""
    pipe, reference = fp("text-generation", name), ref("text-generation", name)
    assert pipe.plan.backend == ENGINE
    alone = {key: value for key, value in options.items() if key != "batch_size"}
    wanted = [reference(prompt, **alone) for prompt in PROMPTS]
    if not (V5 and "batch_size" in options):  # torch refuses, as in transformers: the tokenizer has no pad token
        assert_same(pipe(PROMPTS, **options), wanted)
    assert_same([pipe(prompt, **alone) for prompt in PROMPTS], wanted)
    assert_same(list(pipe((prompt for prompt in PROMPTS), **alone)), wanted)


@before_5
@pytest.mark.parametrize("name", DECODERS)
def test_a_prompt_has_logits_after_its_last_token_only_unless_somebody_asks(fp: Make, ref: Make, name: str) -> None:
    pipe, ids = fp("text-generation", name), torch.tensor([[5, 9, 17, 3], [8, 2, 11, 4]])
    pipe(PROMPTS[0], max_new_tokens=2, num_beams=2)  # a search leaves nothing behind
    with torch.no_grad():
        wanted = ref("text-generation", name).model(ids).logits
    torch.testing.assert_close(pipe.model(ids).logits, wanted, rtol=0, atol=1e-4)
    with pipe.model.lent() as twin:
        last = lean.CausalSteps(twin, ids, {})(ids.numpy())
        assert twin.request.get_tensor("logits").shape == [2, 1, wanted.shape[2]]
    np.testing.assert_allclose(last, wanted[:, -1].numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_chance_with_a_seed(fp: Make, ref: Make, name: str) -> None:
    """The random numbers are drawn in the same order, and for each prompt alone."""
    pipe, reference = fp("text-generation", name), ref("text-generation", name)
    options = {"max_new_tokens": 8, "do_sample": True, "temperature": 0.9, "top_k": 20, "top_p": 0.9}
    for inputs in (PROMPTS[0], PROMPTS[:3]):
        for more in ({}, {"num_return_sequences": 3}):
            results = []
            for one in (pipe, reference):
                torch.manual_seed(7)
                results.append(one(inputs, **options, **more))
            assert_same(results[0], results[1])


def test_configs_and_criteria_of_the_users_own(fp: Make, ref: Make) -> None:
    class AfterThree(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return torch.full((input_ids.shape[0],), input_ids.shape[1] >= 6)

    pipe, reference = fp("text-generation", "llama"), ref("text-generation", "llama")
    config = GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=[5, 17, 40], pad_token_id=0)
    for options in (
        {"generation_config": config},
        {**GREEDY, "stopping_criteria": StoppingCriteriaList([AfterThree()])},
        {**GREEDY, "eos_token_id": 40, "pad_token_id": 0},
        {**GREEDY, "stop_sequence": "l"},
        {**GREEDY, "min_new_tokens": 7},
    ):
        assert_same(pipe(PROMPTS, **options), [reference(prompt, **options) for prompt in PROMPTS])


def test_rows_that_end_early_end_there(fp: Make, ref: Make) -> None:
    """A batch goes on until its last row ends; what is behind a row's own end is not its own."""
    reference = ref("text-generation", "gpt2")
    said = [reference(p, return_tensors=True, **GREEDY)[0]["generated_token_ids"] for p in PROMPTS]
    options = {**GREEDY, "eos_token_id": said[2][-6], "pad_token_id": 1, "return_tensors": True}
    wanted = [reference(prompt, **options) for prompt in PROMPTS]
    assert len({len(result[0]["generated_token_ids"]) - len(p) for result, p in zip(wanted, PROMPTS, strict=True)}) > 1
    assert_same(fp("text-generation", "gpt2")(PROMPTS, **options), wanted)


def test_a_streamer_hears_every_token_in_time(fp: Make, ref: Make) -> None:
    """FP-15: also where an engine generates."""
    wanted = ref("text-generation", "llama")("the old mill", return_full_text=False, **GREEDY)[0]["generated_text"]
    pipe = fp("text-generation", "llama")
    streamer = TextIteratorStreamer(pipe.tokenizer, skip_prompt=True, timeout=60)
    thread = threading.Thread(target=pipe, args=("the old mill",), kwargs={"streamer": streamer, **GREEDY})
    thread.start()
    assert "".join(streamer) == wanted
    thread.join()
    said: list[list[int]] = []

    class Recorder:
        def put(self, tokens: torch.Tensor) -> None:
            said.append(tokens.flatten().tolist())

        def end(self) -> None:
            said.append([])

    tokens = pipe("the old mill", streamer=Recorder(), return_tensors=True, **GREEDY)[0]["generated_token_ids"]
    assert said[0] == tokens[:-8]
    assert said[1:] == [[token] for token in tokens[-8:]] + [[]]


def test_many_threads_generate_at_once(fp: Make) -> None:
    pipe = fp("text-generation", "llama")
    wanted = [pipe(prompt, **GREEDY) for prompt in PROMPTS]
    found: dict[int, Any] = {}

    def ask(place: int) -> None:
        found[place] = [pipe(PROMPTS[place % len(PROMPTS)], **GREEDY) for _ in range(3)]

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {place: [wanted[place % len(PROMPTS)]] * 3 for place in range(10)}


def test_more_tokens_than_positions(fp: Make) -> None:
    """FP-28: the prompt alone, and prompt and answer together; the next call works."""
    pipe = fp("text-generation", "gpt2")
    with pytest.raises((InputTooLongError, RuntimeError), match="64"):
        pipe("a river " * 60, **GREEDY)
    with pytest.raises((InputTooLongError, IndexError)):
        pipe("a river", max_new_tokens=80, do_sample=False)
    assert pipe("a river", **GREEDY)[0]["generated_text"].startswith("a river")


def test_the_users_tokenizer_stays_as_it_is(models: Models) -> None:
    """FP-21: no pad token is added to it, and its padding side stays."""
    model, tokenizer = models.make("gpt2")
    pipe = fastpipe.pipeline("text-generation", model=model, tokenizer=tokenizer)
    pipe(PROMPTS, **GREEDY)
    assert tokenizer.pad_token is None
    assert V5 or tokenizer.padding_side == "right"  # on torch transformers itself turns it
    assert model.generation_config.max_new_tokens is None


@before_5
def test_a_generator_pickles_and_forks_no_state(fp: Make) -> None:
    pipe = fp("text-generation", "llama")
    again = pickle.loads(pickle.dumps(pipe))
    assert again(PROMPTS, **GREEDY) == pipe(PROMPTS, **GREEDY)
    assert again.plan == pipe.plan


@before_5
def test_assisted_decoding_says_why_not(fp: Make, models: Models) -> None:
    assistant, _ = models.make("llama", seed=1)
    with pytest.raises(UnsupportedOnEngineError, match="backend='torch'"):
        fp("text-generation", "llama")("the", assistant_model=assistant, **GREEDY)
    by_torch = fastpipe.pipeline("text-generation", model=models["llama"], assistant_model=models["llama"])
    assert by_torch.plan.backend == "torch"
    assert "assistant_model" in str(by_torch.plan)


@before_5
@pytest.mark.parametrize(("task", "name"), REWRITERS)
@pytest.mark.parametrize("options", [{"max_new_tokens": 12}, {"num_beams": 3, "max_new_tokens": 6}], ids=str)
def test_texts_are_rewritten_alike(fp: Make, ref: Make, task: str, name: str, options: dict[str, Any]) -> None:
    pipe, reference = fp(task, name), ref(task, name)
    assert pipe.plan.backend == "openvino"
    assert_same(pipe(PROMPTS, **options), [reference(prompt, **options)[0] for prompt in PROMPTS])
    assert_same(pipe(PROMPTS[0], **options), reference(PROMPTS[0], **options))
    assert_same(pipe(PROMPTS[0], return_tensors=True, **options), reference(PROMPTS[0], return_tensors=True, **options))


def hearing(fp: Make, backend: str = "auto") -> Any:
    given = () if backend == "auto" else (backend,)
    return fp("automatic-speech-recognition", "whisper", *given)


SOUNDS = [
    np.random.default_rng(seed).standard_normal(16000 * seconds).astype(np.float32)
    for seed, seconds in ((0, 2), (1, 5))
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_timestamps": True},
        {"generate_kwargs": {"language": "en", "task": "translate"}},
        {"chunk_length_s": 3, "batch_size": 2},
        {"generate_kwargs": {"num_beams": 2, "max_new_tokens": 6}},
    ],
    ids=str,
)
@pytest.mark.parametrize("backend", WHISPERS)
def test_sounds_are_heard_alike(fp: Make, ref: Make, backend: str, options: dict[str, Any]) -> None:
    """Whisper: the encoder on the engine, and the decoder with its cache."""
    pipe, reference = hearing(fp, backend), ref("automatic-speech-recognition", "whisper")
    assert pipe.plan.backend == (ENGINE if backend == "auto" else backend)
    given = {"raw": SOUNDS[0].copy(), "sampling_rate": 16000}
    for sound in (SOUNDS[1], given):
        assert_same(pipe(sound, **options), reference(dict(sound) if sound is given else sound, **options))
    assert given.keys() == {"raw", "sampling_rate"}
    assert_same(pipe(SOUNDS, **options), [reference(sound, **options) for sound in SOUNDS])


SHORT = [
    (loudness * np.random.default_rng(seed).standard_normal(int(16000 * seconds))).astype(np.float32)
    for seed, seconds, loudness in ((0, 2, 1), (1, 5, 0.1), (2, 0.4, 1), (3, 9, 0.01), (0, 2, 1), (4, 29, 0.3))
]


@before_5
@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"generate_kwargs": {"max_new_tokens": 12}}, [6]),  # with beams, as by default
        ({"generate_kwargs": {"num_beams": 1}}, [6]),
        ({"return_timestamps": True, "generate_kwargs": {"num_beams": 1, "language": "en"}}, [6]),
        (
            {"return_timestamps": True, "batch_size": 4, "generate_kwargs": {"num_beams": 2, "max_new_tokens": 12}},
            [4, 2],
        ),
        ({"generate_kwargs": {"repetition_penalty": 1.2, "num_beams": 1}}, [1] * 6),
        ({"batch_size": 1, "generate_kwargs": {"num_beams": 1}}, [1] * 6),
    ],
    ids=str,
)
def test_a_list_of_recordings_is_heard_in_batches(
    fp: Make, ref: Make, generations: list[int], options: dict[str, Any], batches: list[int]
) -> None:
    """Each says what it says alone, to the token; the lengths of the answers differ."""
    pipe, reference = hearing(fp), ref("automatic-speech-recognition", "whisper")
    together = pipe(SHORT, **options)
    assert generations == batches
    alone = {key: value for key, value in options.items() if key != "batch_size"}
    assert list(pipe((sound for sound in SHORT), **alone)) == together
    assert_same(together, [reference(sound, **alone) for sound in SHORT])
    assert len({str(answer) for answer in together}) > 2


@before_5
@pytest.mark.parametrize("backend", WHISPERS)
def test_long_recordings_and_pieces_among_short_ones(fp: Make, ref: Make, generations: list[int], backend: str) -> None:
    pipe, reference = hearing(fp, backend), ref("automatic-speech-recognition", "whisper")
    greedy = {"num_beams": 1, "max_new_tokens": 20}
    long = np.concatenate([SHORT[5], SHORT[1]])
    sounds = [SHORT[0], long, {"raw": SHORT[1].copy(), "sampling_rate": 16000, "name": "mill"}]
    copies = [SHORT[0], long, {"raw": SHORT[1].copy(), "sampling_rate": 16000, "name": "mill"}]
    options = {"return_timestamps": True, "generate_kwargs": greedy}
    together = pipe(sounds, **options)
    assert generations == [1, 2]
    assert sounds[2].keys() == {"raw", "sampling_rate", "name"}
    assert_same(together, [reference(sound, **options) for sound in copies])
    generations.clear()
    options = {"chunk_length_s": 10, "generate_kwargs": greedy}
    assert_same(pipe([SHORT[0], long], **options), [reference(sound, **options) for sound in (SHORT[0], long)])
    assert generations == [6]


@before_5
@pytest.mark.parametrize(("beams", "backend"), [(1, "auto"), (3, "auto"), (3, "onnxruntime")])
def test_times_of_words(fp: Make, ref: Make, monkeypatch: pytest.MonkeyPatch, beams: int, backend: str) -> None:
    """The engine writes, and torch's decoder reads what is written: no word is made by torch."""
    pipe = hearing(fp, backend)
    reference = ref("automatic-speech-recognition", "whisper")
    for each in (pipe, reference):
        monkeypatch.setattr(each.generation_config, "alignment_heads", [[0, 0], [1, 1]], raising=False)
    options = {"return_timestamps": "word", "generate_kwargs": {"num_beams": beams, "max_new_tokens": 8}}
    wanted = [reference(sound, **options) for sound in SHORT[:2]]
    monkeypatch.setattr(pipe.model.torch_model, "generate", None)
    assert_same(pipe(SHORT[:2], **options), wanted)
    assert_same(pipe({"raw": SHORT[0], "sampling_rate": 16000}, **options), wanted[0])


@before_5
def test_times_of_words_with_all_that_went_on_inside_are_torchs(fp: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = fp("automatic-speech-recognition", "whisper", precision="fp32")
    monkeypatch.setattr(pipe.model.generation_config, "alignment_heads", [[0, 0], [1, 1]], raising=False)
    features = pipe.feature_extractor(SHORT[0], sampling_rate=16000, return_tensors="pt").input_features
    given = {"input_features": features, "return_token_timestamps": True, "max_new_tokens": 4, "num_beams": 1}
    inside = pipe.model.generate(**given, return_dict_in_generate=True)
    assert len(inside["cross_attentions"]) == 4
    times = pipe.model.generate(**given)["token_timestamps"]
    begin = inside["token_timestamps"].shape[1] - times.shape[1]  # it counts what the decoder starts with
    assert torch.equal(inside["token_timestamps"][:, begin:], times)
    with pipe.model.lent() as twin:
        assert twin._heard is None  # what was heard is not kept


@before_5
@pytest.mark.parametrize(("task", "name"), [("text-generation", "llama"), ("summarization", "bart")])
@pytest.mark.parametrize("beams", [1, 3])
def test_generate_tells_scores_as_transformers_does(fp: Make, ref: Make, task: str, name: str, beams: int) -> None:
    pipe, reference = fp(task, name, precision="fp32"), ref(task, name)
    given = pipe.tokenizer(PROMPTS[2], return_tensors="pt", return_token_type_ids=False)
    asked = {"num_beams": beams, "max_new_tokens": 5, "do_sample": False, "repetition_penalty": 1.3}
    told = {"return_dict_in_generate": True, "output_scores": True}
    mine, theirs = (one.model.generate(**given, **asked, **told) for one in (pipe, reference))
    assert type(mine) is type(theirs)
    assert torch.equal(mine.sequences, theirs.sequences)
    assert len(mine.scores) == len(theirs.scores)
    for one, other in zip(mine.scores, theirs.scores, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert torch.equal(pipe.model.generate(**given, **asked), mine.sequences)


@before_5
@pytest.mark.parametrize("beams", [1, 3])
def test_what_the_lean_steps_do_not_tell_comes_from_transformers_own(fp: Make, ref: Make, beams: int) -> None:
    """With several prompts, between generations by the lean steps, which ask the engine for less."""
    pipe, reference = fp("text-generation", "llama"), ref("text-generation", "llama")
    ids = torch.tensor([[5, 9, 17, 3], [8, 2, 11, 4]])
    asked = {"num_beams": beams, "max_new_tokens": 4, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    told = {"return_dict_in_generate": True, "output_logits": True}
    before = pipe.model.generate(ids, **asked)
    mine, theirs = (one.model.generate(ids, **asked, **told) for one in (pipe, reference))
    assert torch.equal(mine.sequences, theirs.sequences)
    for one, other in zip(mine.logits, theirs.logits, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    assert torch.equal(pipe.model.generate(ids, **asked), before)


@before_5
def test_a_long_recording_alone_is_heard_in_one_batch(fp: Make, ref: Make, generations: list[int]) -> None:
    pipe, reference = hearing(fp), ref("automatic-speech-recognition", "whisper")
    long = np.concatenate([SHORT[5], SHORT[1]])
    for options in (
        {"chunk_length_s": 10, "generate_kwargs": {"num_beams": 1, "max_new_tokens": 12}},
        {"chunk_length_s": 10, "return_timestamps": True, "generate_kwargs": {"max_new_tokens": 12}},
    ):
        wanted = reference(long, **options)
        for inputs, answer in ((long, wanted), ([long], [wanted])):
            generations.clear()
            assert_same(pipe(inputs, **options), answer)
            assert generations == [5]
    with pytest.raises(InputError) as caught:
        pipe(None, chunk_length_s=10)
    assert "item" not in str(caught.value)
    assert caught.value.index is None


@before_5
def test_beams_share_what_was_heard(fp: Make) -> None:
    """Two recordings with three beams each, which change places within their recording."""
    pipe = fp("automatic-speech-recognition", "whisper")
    width = pipe.model.config.d_model
    hidden = torch.randn(2, 20, width, generator=torch.Generator().manual_seed(0)).repeat_interleave(3, dim=0)
    ids = torch.tensor([[4, 7], [4, 8], [4, 9], [4, 10], [4, 11], [4, 12]])
    said = []
    with pipe.model.lent() as twin:
        assert twin.shares_beams
        for beams, rows in ((1, 6), (3, 2)):
            step = lean.Seq2SeqSteps(twin, ids, {"encoder_outputs": (hidden,)}, beams)
            logits = [step(ids.numpy())]
            assert twin.decoder.request.get_tensor("encoder_hidden_states").shape == [rows, 20, width]
            step.rows = np.array([2, 0, 0, 5, 5, 3], np.int32)
            logits += [step(ids.numpy()[:, :1]), step(ids.numpy()[:, 1:])]
            said.append(np.stack(logits))
    np.testing.assert_allclose(said[1], said[0], rtol=0, atol=1e-4)
    assert np.abs(said[0][:, 0] - said[0][:, 1]).max() > 1e-2


@before_5
def test_a_recording_that_is_none_is_named(fp: Make) -> None:
    with pytest.raises(InputError, match="item 1"):
        fp("automatic-speech-recognition", "whisper")([SHORT[0], None])


@before_5
def test_batches_of_recordings_stop_at_what_the_decoder_may_remember(
    fp: Make, generations: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = fp("automatic-speech-recognition", "whisper")
    options = {"generate_kwargs": {"num_beams": 1}}
    wanted = pipe(SHORT, **options)
    sizes = pipe.model.config
    one = 4 * 2 * sizes.decoder_layers * sizes.max_source_positions * sizes.d_model
    generations.clear()
    monkeypatch.setattr(recordings, "_MEMORY", 3 * one)
    assert pipe(SHORT, **options) == wanted
    assert generations == [3, 3]


@before_5
def test_integers_are_batched_where_rows_stay_the_same(
    fp: Make, generations: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder of integers is tried first; where rows change with those beside, every recording goes alone."""
    pipe = fp("automatic-speech-recognition", "whisper")
    with pipe.model.lent() as twin:
        assert lean.same_beside_others(twin, 5, 40)
    for same, batches in ((True, [6]), (False, [1] * 6)):
        generations.clear()
        monkeypatch.setattr(lean, "same_beside_others", lambda *_, same=same: same)
        monkeypatch.setattr(pipe, "_prompts", recordings.Recordings(pipe.model, exact=False))
        pipe(SHORT, generate_kwargs={"num_beams": 1})
        assert generations == batches


@before_5
def test_texts_and_answers_longer_than_a_rewriters_positions(fp: Make) -> None:
    """FP-28: torch fails on both; an engine would read past its table and go on."""
    pipe = fp("summarization", "bart")
    never_ends = {"max_new_tokens": 80, "eos_token_id": -1, "forced_eos_token_id": None}
    for call in (
        lambda: pipe("a river " * 60, max_new_tokens=4),
        lambda: pipe("a river", **never_ends),
        lambda: pipe("a river", num_beams=1, **never_ends),
    ):
        with pytest.raises(InputTooLongError, match="64"):
            call()
    assert pipe("a river", max_new_tokens=4)[0]["summary_text"] is not None


@before_5
def test_a_forked_process_generates_too(fp: Make) -> None:
    """The engine's threads stay with the parent, and nothing waits for them."""
    pipe = fp("text-generation", "llama")
    wanted = pipe(PROMPTS[0], **GREEDY)
    time.sleep(0.5)  # until they sleep: one that is awake may hold a lock, and in the child for ever
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(pipe, (PROMPTS[0],), GREEDY).get(timeout=120) == wanted


@before_5
@pytest.mark.parametrize("task_and_name", [("text-generation", "llama"), ("text2text-generation", "t5")], ids=str)
def test_the_other_engine_generates_the_same(fp: Make, ref: Make, task_and_name: tuple[str, str]) -> None:
    pipe, reference = fp(*task_and_name, "onnxruntime"), ref(*task_and_name)
    assert pipe.plan.backend == "onnxruntime"
    wanted = [reference(prompt, **GREEDY) for prompt in PROMPTS]
    assert_same([pipe(prompt, **GREEDY) for prompt in PROMPTS], wanted)


@before_5
def test_the_other_engine_hears_lists_in_batches_and_for_many_threads(
    fp: Make, ref: Make, generations: list[int]
) -> None:
    pipe, reference = hearing(fp, "onnxruntime"), ref("automatic-speech-recognition", "whisper")
    options = {"return_timestamps": True, "generate_kwargs": {"num_beams": 2, "max_new_tokens": 12}}
    wanted = [reference(sound, **options) for sound in SHORT]
    assert_same(pipe(SHORT, batch_size=4, **options), wanted)
    assert generations == [4, 2]
    found: dict[int, Any] = {}

    def ask(place: int) -> None:
        found[place] = pipe(SHORT[place], **options)

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same([found[place] for place in range(4)], wanted[:4])


@before_5
def test_the_other_engine_hears_in_integers(fp: Make, generations: list[int]) -> None:
    """With one scale per token, so that a recording in a batch is heard as it is alone."""
    pipe = fp("automatic-speech-recognition", "whisper", "onnxruntime", precision="int8", accuracy=None)
    assert (pipe.plan.backend, pipe.plan.precision) == ("onnxruntime", "int8")
    options = {"generate_kwargs": {"num_beams": 1, "max_new_tokens": 12}}
    assert pipe(SHORT, **options) == [pipe(sound, **options) for sound in SHORT]
    assert generations == [6] + [1] * 6


@before_5
@pytest.mark.slow
def test_integers_that_the_check_refuses_leave_whisper_in_fp32(fp: Make) -> None:
    strict = fastpipe.Accuracy(drift=1e-9)
    pipe = fp("automatic-speech-recognition", "whisper", "onnxruntime", precision="auto", accuracy=strict)
    assert (pipe.plan.backend, pipe.plan.precision) == ("onnxruntime", "fp32")
    assert pipe.report.refused == ["int8"]
    assert all("drift" in pipe.report[name].verdict for name in pipe.report.refused)


@before_5
def test_a_recipe_that_is_for_encoders_is_refused_by_name(models: Models) -> None:
    with pytest.raises(OptionError, match="int8-static"):
        fastpipe.pipeline("text-generation", model=models["llama"], backend="openvino", precision="int8-static")


@before_5
def test_verify_and_tune_say_that_they_compare_no_generators(fp: Make) -> None:
    for compare in (fastpipe.verify, fastpipe.tune):
        with pytest.raises(OptionError, match=r"pipe\.report"):
            compare(fp("text-generation", "llama"), ["a"])
