"""Generators and Datasets of prompts, chats and recordings: transformers' results, generated several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers.pipelines.pt_utils import KeyDataset, PipelineIterator

from fastpipe.errors import InputTooLongError
from fastpipe.pipelines.generators.batches import Prompts
from fastpipe.pipelines.generators.model import GeneratorModel
from fastpipe.pipelines.windows import Results
from tests.compare import assert_same
from tests.conftest import V5

Make = Callable[..., Any]
WORDS = ["a", "small", "river", "runs", "past", "the", "old", "mill", "and", "its", "wheel", "turns", "still"]
PROMPTS = [" ".join(WORDS[: 1 + (5 * n) % 13]) for n in range(21)]
CHATS = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
GREEDY = {"max_new_tokens": 6, "do_sample": False}
before_5 = pytest.mark.skipif(V5, reason="transformers 5 has no engine that generates")


class Rows(torch.utils.data.Dataset):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input": self.items[index], "other": 0}


class Lines(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[str]:
        yield from PROMPTS


FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "generator": lambda items: (item for item in items),
    "KeyDataset": lambda items: KeyDataset(Rows(items), "input"),
}
forms = pytest.mark.parametrize("form", FORMS)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each generation on an engine has, those of a single input aside."""
    counted: list[int] = []
    generate_rows = GeneratorModel.generate_rows

    def counting(self: Any, **arguments: Any) -> Any:
        counted.append(len(arguments["input_ids"]))
        return generate_rows(self, **arguments)

    monkeypatch.setattr(GeneratorModel, "generate_rows", counting)
    return counted


@forms
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize(
    "options",
    [
        GREEDY,
        {**GREEDY, "return_full_text": False},
        {**GREEDY, "return_tensors": True},
        {**GREEDY, "num_beams": 2, "num_return_sequences": 2},
        {**GREEDY, "repetition_penalty": 1.3},
    ],
    ids=str,
)
def test_prompts(fp: Make, ref: Make, form: str, name: str, options: dict[str, Any]) -> None:
    pipe, reference = fp("text-generation", name), ref("text-generation", name)
    wanted = list(reference(FORMS[form](PROMPTS), **options))
    results = pipe(FORMS[form](PROMPTS), **options)
    assert_same(list(results), wanted)
    if form == "KeyDataset":
        assert len(results) == len(PROMPTS)
        assert_same(list(results), wanted)  # once more, from its beginning


@before_5
@forms
def test_several_prompts_go_at_once(fp: Make, rows: list[int], form: str) -> None:
    pipe = fp("text-generation", "llama")
    calls = pipe.call_count
    results = pipe(FORMS[form](PROMPTS), **GREEDY)
    assert pipe.call_count == calls + 1
    assert next(iter(results))
    assert not rows  # the first goes alone
    assert len(list(pipe(FORMS[form](PROMPTS), **GREEDY))) == len(PROMPTS)
    assert sum(rows) >= len(PROMPTS) - 3
    assert max(rows) >= 6


@before_5
def test_batches_are_bounded_by_batch_size(fp: Make, ref: Make, rows: list[int]) -> None:
    pipe = fp("text-generation", "llama")
    wanted = [ref("text-generation", "llama")(prompt, **GREEDY) for prompt in PROMPTS]
    for most in (3, 1):
        rows.clear()
        assert_same(list(pipe(FORMS["generator"](PROMPTS), batch_size=most, **GREEDY)), wanted)
        assert max(rows, default=1) == most


def test_datasets_that_are_only_iterated(fp: Make, ref: Make) -> None:
    pipe, reference = fp("text-generation", "gpt2"), ref("text-generation", "gpt2")
    assert_same(list(pipe(Lines(), **GREEDY)), list(reference(Lines(), **GREEDY)))


@pytest.mark.parametrize("form", [*FORMS, "list"])
def test_chats(fp: Make, ref: Make, rows: list[int], form: str) -> None:
    make = FORMS.get(form, list)
    pipe, reference = fp("text-generation", "gpt2chat"), ref("text-generation", "gpt2chat")
    assert_same(list(pipe(make(CHATS), **GREEDY)), list(reference(make(CHATS), **GREEDY)))
    assert V5 or max(rows) > 1


@pytest.mark.parametrize("batch_size", [None, 1])
def test_what_is_read_when(fp: Make, batch_size: int | None) -> None:
    """As in transformers, nothing before it is asked for; at most two batches ahead, and none with `batch_size=1`."""
    read = 0

    def source() -> Iterator[str]:
        nonlocal read
        for prompt in PROMPTS * 3:
            read += 1
            yield prompt

    results = iter(fp("text-generation", "llama")(source(), batch_size=batch_size, max_new_tokens=1, do_sample=False))
    assert read <= 1  # transformers looks at the first, as it may be a chat
    for taken, _ in enumerate(results, 1):
        assert read - taken <= (16 if batch_size is None else 0)
        assert taken > 1 or read == 1


@pytest.mark.parametrize("more", [{}, {"num_return_sequences": 2}])
def test_chance_has_its_numbers_in_their_order(fp: Make, ref: Make, more: dict[str, Any]) -> None:
    """Also where the source takes some in between."""

    def source() -> Iterator[str]:
        for prompt in PROMPTS[:6]:
            yield f"{prompt} {WORDS[int(torch.randint(len(WORDS), ()))]}"

    answers = []
    for make in (fp, ref):
        torch.manual_seed(3)
        given = make("text-generation", "llama")(source(), max_new_tokens=6, do_sample=True, **more)
        assert isinstance(given, PipelineIterator)
        answers.append(list(given))
    assert_same(answers[0], answers[1])


def test_an_error_of_the_source_comes_after_the_results_before_it(fp: Make) -> None:
    def source() -> Iterator[str]:
        yield from PROMPTS[:12]
        raise OSError("the line is dead")

    results = iter(fp("text-generation", "llama")(source(), **GREEDY))
    assert [next(results)[0]["generated_text"].startswith(prompt) for prompt in PROMPTS[:12]] == [True] * 12
    with pytest.raises(OSError, match="the line is dead"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


@before_5
@forms
def test_a_prompt_that_fails_is_named_and_those_around_it_are_answered(
    fp: Make, ref: Make, rows: list[int], form: str
) -> None:
    pipe, reference = fp("text-generation", "gpt2"), ref("text-generation", "gpt2")
    results = iter(pipe(FORMS[form]([*PROMPTS[:13], "a river " * 60, *PROMPTS[13:]]), **GREEDY))
    wanted = [reference(prompt, **GREEDY) for prompt in PROMPTS]
    assert_same([next(results) for _ in range(13)], wanted[:13])
    with pytest.raises(InputTooLongError, match="item 13"):
        next(results)
    assert_same([next(results) for _ in PROMPTS[13:]], wanted[13:])
    assert max(rows) > 2
    results = iter(pipe(FORMS[form]([*PROMPTS[:3], None]), **GREEDY))
    assert len([next(results) for _ in range(3)]) == 3
    with pytest.raises((TypeError, ValueError), match="item 3"):
        next(results)


def test_arguments_that_are_wrong_are_refused_by_the_call(fp: Make) -> None:
    with pytest.raises(ValueError, match="return_text"):
        fp("text-generation", "llama")((p for p in PROMPTS), return_text=True, return_tensors=True)


@before_5
def test_a_bar_shows_how_far_it_is(fp: Make, capsys: pytest.CaptureFixture[str]) -> None:
    for form, shown in (("generator", "21input"), ("KeyDataset", "21/21")):
        assert len(list(fp("text-generation", "llama")(FORMS[form](PROMPTS), progress_bar=True, **GREEDY))) == 21
        assert shown in capsys.readouterr().err
    list(fp("text-generation", "llama")(FORMS["generator"](PROMPTS), **GREEDY))
    assert capsys.readouterr().err == ""


@before_5
def test_calls_side_by_side(fp: Make) -> None:
    """Taken in turns by one thread, and by several threads at once."""
    pipe = fp("text-generation", "llama")
    wanted = pipe(PROMPTS, **GREEDY)
    one, other = (pipe(FORMS["generator"](items), **GREEDY) for items in (PROMPTS, PROMPTS[::-1]))
    for place, (first, second) in enumerate(zip(one, other, strict=True)):
        assert (first, second) == (wanted[place], wanted[-1 - place])
    found: dict[int, Any] = {}

    def ask(place: int) -> None:
        found[place] = list(pipe(FORMS["generator"](PROMPTS[place:]), **GREEDY))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {place: wanted[place:] for place in range(6)}


@before_5
@forms
@pytest.mark.parametrize(
    ("task", "name"), [("text2text-generation", "t5"), ("summarization", "bart"), ("translation", "marian")]
)
@pytest.mark.parametrize("beams", [1, 2])
def test_texts_are_rewritten(fp: Make, ref: Make, form: str, task: str, name: str, beams: int) -> None:
    options = {"max_new_tokens": 8, "num_beams": beams}
    pipe, reference = fp(task, name), ref(task, name)
    assert_same(list(pipe(FORMS[form](PROMPTS), **options)), list(reference(FORMS[form](PROMPTS), **options)))


@before_5
def test_rewritten_texts_of_one_length_go_at_once(
    fp: Make, ref: Make, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, reference = fp("summarization", "bart"), ref("summarization", "bart")
    for each in (pipe, reference):  # a rule about the last token reads the others
        monkeypatch.setattr(each.generation_config, "forced_eos_token_id", None)
        monkeypatch.setattr(each.model.generation_config, "forced_eos_token_id", None)
    texts, options = [PROMPTS[n % 3] for n in range(22)], {"max_new_tokens": 8, "num_beams": 1}
    assert_same(list(pipe(FORMS["generator"](texts), **options)), [reference(text, **options) for text in texts])
    assert max(rows) == 5


def _sounds() -> list[Any]:
    sounds = [
        (loudness * np.random.default_rng(seed).standard_normal(int(16000 * seconds))).astype(np.float32)
        for seed, seconds, loudness in ((0, 2, 1), (1, 5, 0.1), (2, 0.4, 1), (3, 9, 0.01), (4, 29, 0.3), (5, 3, 1))
    ]
    return [
        sounds[0],
        {"raw": sounds[1], "sampling_rate": 16000, "name": "mill"},
        *sounds[2:],
        {"array": sounds[3], "path": "mill.wav", "sampling_rate": 16000},
    ]


@forms
@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"generate_kwargs": {"num_beams": 1, "max_new_tokens": 12}}, [1, 4, 2]),
        ({"generate_kwargs": {"num_beams": 2, "max_new_tokens": 6}}, [1, 4, 2]),
        ({"return_timestamps": True, "generate_kwargs": {"num_beams": 1, "language": "en"}}, [1, 4, 2]),
        ({"chunk_length_s": 10, "generate_kwargs": {"num_beams": 1, "max_new_tokens": 8}}, [1, 7, 2]),
        ({"generate_kwargs": {"num_beams": 1, "repetition_penalty": 1.2, "max_new_tokens": 8}}, [1] * 7),
    ],
    ids=str,
)
def test_recordings(
    fp: Make, ref: Make, generations: list[int], form: str, options: dict[str, Any], batches: list[int]
) -> None:
    pipe, reference = fp("automatic-speech-recognition", "whisper"), ref("automatic-speech-recognition", "whisper")
    given = _sounds()
    assert_same(list(pipe(FORMS[form](given), **options)), list(reference(FORMS[form](_sounds()), **options)))
    assert V5 or generations == batches
    for mine, fresh in zip(given, _sounds(), strict=True):
        if isinstance(fresh, dict):
            assert list(mine) == list(fresh)


@before_5
def test_a_recording_that_fails_is_named_and_the_others_are_heard(fp: Make) -> None:
    pipe, options = fp("automatic-speech-recognition", "whisper"), {"generate_kwargs": {"num_beams": 1}}
    sounds = _sounds()
    wanted = pipe(sounds, **options)
    results = iter(pipe(FORMS["generator"]([*sounds[:4], None, *sounds[4:]]), **options))
    assert isinstance(results, Results)
    assert [next(results) for _ in range(4)] == wanted[:4]
    with pytest.raises((TypeError, ValueError), match="item 4"):
        next(results)
    assert list(results) == wanted[4:]


@before_5
def test_a_model_of_the_users_own_is_asked_one_by_one(fp: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no batch can be made of a window, each prompt goes as in transformers."""
    pipe = fp("text-generation", "llama")
    wanted = pipe(PROMPTS, **GREEDY)
    monkeypatch.setattr(Prompts, "together", lambda *_: None)
    assert list(pipe(FORMS["generator"](PROMPTS), **GREEDY)) == wanted
