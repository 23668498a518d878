"""Calibration data: what is taken as inputs, which of them are kept, and their digest."""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.pipelines.pt_utils import KeyDataset

from fastpipe.errors import OptionError
from fastpipe.precision.calibration import Calibration, read

TEXTS = [f"text {number}" for number in range(1000)]
NAN = float("nan")


class MapStyle(torch.utils.data.Dataset):
    """A dataset that can be indexed but not iterated, and that says which rows were asked for."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.rows[index]


class Streamed(torch.utils.data.IterableDataset):
    """A dataset that can be iterated only."""

    def __iter__(self) -> Iterator[str]:
        return iter(TEXTS)


def digest(*items: Any) -> str:
    return read(list(items)).digest


def failure(data: Any, **options: Any) -> str:
    with pytest.raises(OptionError) as raised:
        read(data, **options)
    assert raised.value.remedy
    assert "calibration_data" in raised.value.fact
    return str(raised.value)


# --- which items are kept -------------------------------------------------------------------------------------------


_texts = st.lists(st.text(max_size=5), min_size=1, max_size=60)
_bounds = st.fixed_dictionaries(
    {"limit": st.integers(1, 70), "most": st.integers(1, 70), "seed": st.integers(-3, 2**40)},
)


@given(_texts, _bounds)
def test_bounds_hold_and_the_order_is_the_sources(texts, bounds):
    numbered = list(enumerate(texts))
    items = read(numbered, **bounds).items
    assert len(items) == min(len(texts), bounds["limit"], bounds["most"])
    places = [place for place, _ in items]
    assert places == sorted(set(places))
    assert all(place < bounds["most"] for place in places)
    assert all(numbered[place] == item for place, item in zip(places, items, strict=True))


@given(_texts, _bounds)
def test_the_same_data_and_seed_give_the_same_items_in_any_form(texts, bounds):
    forms = [texts, tuple(texts), iter(texts), (text for text in texts), MapStyle(texts), np.array(texts, dtype=object)]
    assert len({read(form, **bounds) for form in forms}) == 1
    assert len({read(form, **bounds).items for form in [texts, iter(texts), MapStyle(texts)]}) == 1


def test_another_seed_gives_other_items():
    assert len({read(TEXTS, seed=seed).digest for seed in range(5)}) == 5


def test_the_subset_is_part_of_the_contract():
    # Artifacts are keyed by its digest: it must not change with the version of Python or of fastpipe.
    assert read(TEXTS, limit=5).items == ("text 407", "text 517", "text 668", "text 911", "text 998")
    assert read(TEXTS).digest == "22353cfec832f5bd7d0bbcb5efe5aee1102be6d8d0f954596a9278fbfef2f41f"


def test_every_item_is_as_likely_as_any():
    counts = np.zeros(40)
    for seed in range(2000):
        counts[[place for place, _ in read(list(enumerate(TEXTS[:40])), limit=10, seed=seed).items]] += 1
    # Binomial(2000, 1/4): mean 500, standard deviation 19.4.
    assert (abs(counts - 500) < 5 * 19.4).all()


def test_no_global_random_state_is_touched():
    random.seed(3)
    np.random.seed(3)
    wanted = random.getstate(), np.random.get_state()[2]
    read(TEXTS, limit=3)
    assert (random.getstate(), np.random.get_state()[2]) == wanted


class Item:
    """Something whose life can be watched."""


def test_a_long_generator_is_bounded_in_memory_and_in_what_is_pulled():
    alive: weakref.WeakSet[Item] = weakref.WeakSet()
    pulled = largest = 0

    def source() -> Iterator[Item]:
        nonlocal pulled, largest
        for _ in range(1_000_000):
            pulled += 1
            item = Item()
            alive.add(item)
            if pulled % 500 == 0:
                largest = max(largest, len(alive))
            yield item

    gc.collect()
    items = read(source(), limit=64).items
    assert pulled == 20_000
    assert len(items) == 64
    assert largest <= 64 + 3  # the item being made, and the one before it


@pytest.mark.parametrize("most", [1, 10, 999])
def test_no_item_beyond_the_most_is_pulled(most):
    source = iter(TEXTS)
    read(source, most=most)
    assert next(source) == TEXTS[most]


def test_of_a_source_that_can_be_indexed_only_the_kept_are_read():
    data = MapStyle(TEXTS)
    assert read(data, limit=20).items == tuple(TEXTS[place] for place in data.asked)
    assert len(data.asked) == 20


# --- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 15])
def test_few_items_are_for_both_parts(size):
    data = read(TEXTS[:size])
    assert data.parts() == (data.items, data.items)


@pytest.mark.parametrize("size", [16, 17, 256])
def test_parts_alternate_and_share_nothing(size):
    data = read(TEXTS[:size])
    fitted, judged = data.parts()
    assert fitted + judged == data.items[::2] + data.items[1::2]
    assert len(fitted) - len(judged) in (0, 1)
    assert not set(fitted) & set(judged)


def test_it_is_equal_by_content_hashable_and_frozen():
    one, other = read([np.arange(3)]), read([np.arange(3)])
    assert one == other
    assert hash(one) == hash(other)
    assert one != read([np.arange(4)])
    with pytest.raises(AttributeError):
        one.digest = "other"


# --- what is taken --------------------------------------------------------------------------------------------------


SOUND = np.linspace(-1, 1, 50, dtype=np.float32)
INPUTS = {
    "texts": ["a", "b", ""],
    "pairs": [{"text": "a", "text_pair": "b"}, {"text": "a", "text_pair": None}],
    "questions": [{"question": "who?", "context": "she"}],
    "tuples": [("a", "b"), ["c", "d"]],
    "arrays": [SOUND, SOUND[:7]],
    "sounds": [{"raw": SOUND, "sampling_rate": 16000}, {"array": SOUND, "sampling_rate": 8000}],
    "images": [Image.new("RGB", (3, 2)), Image.new("L", (4, 4))],
    "bytes": [b"RIFF", b""],
    "tensors": [torch.zeros(3), torch.zeros(2, 3)],
    "numpy texts": np.array(["a", "bc"]),
    "rows of an array": np.zeros((2, 5), np.float32),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_are_kept_as_they_are(name):
    wanted = list(INPUTS[name])
    for form in (INPUTS[name], iter(INPUTS[name]), MapStyle(wanted)):
        items = read(form).items
        assert len(items) == len(wanted)
        for item, want in zip(items, wanted, strict=True):
            assert item is want or (np.asarray(item) == np.asarray(want)).all()


def test_key_datasets_of_transformers():
    rows = MapStyle([{"text": text, "label": 1} for text in TEXTS])
    assert read(KeyDataset(rows, "text"), limit=9) == read(TEXTS, limit=9)
    assert len(rows.asked) == 9


def test_other_datasets_of_torch():
    assert read(Streamed(), limit=9) == read(TEXTS, limit=9)
    assert read(torch.utils.data.Subset(MapStyle(TEXTS), range(5, 9))).items == tuple(TEXTS[5:9])


def test_columns_of_datasets():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": [0] * len(TEXTS)})
    assert read(data["text"], limit=9) == read(TEXTS, limit=9)
    assert read(list(data["text"]), limit=9) == read(TEXTS, limit=9)
    assert read(data[:]["text"], limit=9) == read(TEXTS, limit=9)
    assert read(KeyDataset(data, "text"), limit=9) == read(TEXTS, limit=9)
    assert read(data.to_iterable_dataset().select_columns("text")["text"], limit=9) == read(TEXTS, limit=9)


def test_whole_datasets_are_refused():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": ["a"], "label": [0]})
    for whole in (data, data.to_iterable_dataset()):
        assert "data['text']" in failure(whole)
    assert "data['train']['text']" in failure(datasets.DatasetDict({"train": data}))


def test_columns_of_pandas():
    pd = pytest.importorskip("pandas")
    data = pd.DataFrame({"text": TEXTS, "label": 0}, index=range(7, 1007))
    assert read(data["text"], limit=9) == read(TEXTS, limit=9)
    assert "data['text']" in failure(data)
    for missing in (NAN, None, pd.NA, pd.NaT):
        assert "item 1" in failure(pd.Series(["a", missing], dtype=object))
    assert "item 1" in failure(pd.Series(["a", None], dtype="string"))


def test_the_order_of_a_set_does_not_depend_on_the_process():
    command = "from fastpipe.precision.calibration import read; print(read({str(i) for i in range(99)}, limit=9))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", command],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | bytes, name: str = "texts.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("\ufeffa\r\nb\r\n", ["a", "b"]),
        ("\n  a b \n \t\n\nc\n", ["  a b ", "c"]),
        ("é\u2028ü\x0b\x85\n文", ["é\u2028ü\x0b\x85", "文"]),
        ('"a"\n{}\n', ['"a"', "{}"]),
    ],
)
def test_a_file_of_texts_holds_one_a_line(file, content, texts):
    path = file(content)
    assert read(path).items == tuple(texts)
    assert read(str(path)) == read(texts)


def test_a_path_may_start_at_home(file, monkeypatch):
    path = file("a\n")
    monkeypatch.setenv("HOME", str(path.parent))
    assert read("~/texts.txt").items == ("a",)


@pytest.mark.parametrize("name", ["data.jsonl", "data.json", "data.ndjson", "DATA.JSONL"])
def test_a_file_of_json_lines_holds_strings_and_objects(file, name):
    rows = [
        "a\nb",
        {"text": "c"},
        {"text": "d", "label": 3, "id": None},
        {"text_pair": "f", "text": "e", "label": "x"},
        {"text": "g", "text_pair": None},
        {"context": "h", "question": "i", "answers": {"text": ["j"]}},
        {"id": 1, "text": "the whole article", "question": "k", "context": "l"},
        "",
    ]
    path = file("\n\n".join(json.dumps(row) for row in rows), name)
    assert read(path).items == (
        "a\nb",
        "c",
        "d",
        {"text": "e", "text_pair": "f"},
        "g",
        {"question": "i", "context": "h"},
        {"question": "k", "context": "l"},
        "",
    )


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "a text",
        "3",
        "null",
        "true",
        "[]",
        '["a", "b"]',
        "{}",
        '{"label": 3}',
        '{"question": "who?"}',
        '{"text_pair": "a"}',
        '{"text": 3}',
        '{"text": null}',
        '{"text": "a", "text_pair": 3}',
        '{"text": ["a"]}',
    ],
)
def test_a_bad_json_line_is_named_by_its_number(file, line):
    message = failure(file(f'"a"\n\n{line}\n"b"', "data.jsonl"))
    assert "line 3" in message
    assert "data.jsonl" in message


def test_a_file_is_read_no_further_than_the_most(file):
    assert read(file('"a"\n"b"\n{', "data.jsonl"), most=2).items == ("a", "b")


@pytest.mark.parametrize("content", ["", "\n\n  \n", "\ufeff"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_an_empty_file_is_an_error(file, content, name):
    assert "empty" in failure(file(content, name))


@pytest.mark.parametrize("content", [b"caf\xe9\n", "a\n".encode("utf-16"), b"PAR1\x15\x04\x15\xe0"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_file_that_is_not_utf8_is_an_error(file, content, name):
    assert "UTF-8" in failure(file(content, name))


@pytest.mark.parametrize("text", ["a single text", "", "nul\0byte", "word " * 5000, Path("missing.txt"), Path(".")])
def test_a_text_or_a_path_that_is_no_file_is_an_error(text):
    message = failure(text)
    assert "is not a file" in message
    assert "pass a list with it" in message
    assert repr(str(text)[:20])[:-1] in message
    assert len(message) < 300


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [[], (), {}.values(), iter(()), np.array([]), MapStyle([]), set()])
def test_no_data_is_an_error(data):
    assert "empty" in failure(data)


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        2.5,
        True,
        NAN,
        b"RIFF",
        bytearray(b"RIFF"),
        {"text": "a"},
        {},
        list,
        dict,
        MapStyle,
        object(),
        len,
        np.float32(1),
        np.array(1.0),
        torch.tensor(1.0),
        Image.new("L", (2, 2)),
        torch.utils.data.Dataset(),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_is_no_collection_is_an_error(data):
    assert "not a collection of inputs" in failure(data)
    assert "a list" in failure(data)


@pytest.mark.parametrize(
    "item",
    [None, 3, 2.5, True, 1j, NAN, np.float32("nan"), np.int64(3), np.bool_(True), np.array(1.0), torch.tensor(2)],
    ids=repr,
)
@pytest.mark.parametrize("place", [0, 3, 999])
def test_what_is_no_input_is_named_by_its_index(item, place):
    data = [*TEXTS[:place], item, *TEXTS[place:]]
    for form in (data, iter(data), MapStyle(data)):
        message = failure(form, limit=5000)
        assert f"item {place}:" in message
        assert repr(item) in message
    assert f"item {place}:" in failure(data, limit=2)  # whether or not it would be kept


@pytest.mark.parametrize("data", [range(5), SOUND, torch.zeros(5)])
def test_numbers_are_no_inputs(data):
    assert "item 0:" in failure(data)


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("y"), OSError("z"), UnicodeDecodeError("a", b"", 0, 1, "")])
def test_an_error_of_the_source_passes(error):
    def source() -> Iterator[str]:
        yield "a"
        raise error

    with pytest.raises(type(error)) as raised:
        read(source())
    assert raised.value is error


def test_an_error_of_an_indexed_source_passes():
    with pytest.raises(KeyError, match="txet"):
        read(KeyDataset(MapStyle([{"text": "a"}]), "txet"))


# --- the digest -----------------------------------------------------------------------------------------------------


_leaves = st.one_of(
    st.text(max_size=4),
    st.binary(max_size=4),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=False, width=16).filter(bool),  # 0.0 equals -0.0
    st.none(),
)
_keys = st.sampled_from(["text", "text_pair", "raw", ""])
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_keys, inner, max_size=3),
    ),
    max_leaves=6,
)
_inputs = st.lists(
    st.one_of(st.text(max_size=4), st.binary(max_size=4), st.dictionaries(_keys, _values, max_size=3)),
    min_size=1,
    max_size=4,
)


def typed(value: Any) -> Any:
    """Spell a value out, so that True, 1 and 1.0 are unequal and the order of keys does not matter."""
    if isinstance(value, dict):
        return "dict", frozenset((key, typed(part)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(typed(part) for part in value)
    return type(value).__name__, value


@given(_inputs, _inputs)
def test_digests_are_equal_where_contents_are(one, other):
    assert (read(one).digest == read(other).digest) == (typed(one) == typed(other))


@given(
    st.lists(st.text(alphabet="ab", max_size=3), min_size=1), st.lists(st.text(alphabet="ab", max_size=3), min_size=1)
)
def test_digests_tell_where_a_text_ends(one, other):
    assert (read(one).digest == read(other).digest) == (one == other)


def test_a_digest_is_a_sha256():
    assert len(bytes.fromhex(digest("a"))) == 32


def test_a_digest_depends_on_the_kept_items_alone():
    first = read(TEXTS, limit=9)
    assert read(first.items) == first
    dropped = [text if text in first.items else "other" for text in TEXTS]
    assert read(dropped, limit=9) == first


def red(mode: str, size: tuple[int, int] = (2, 3)) -> Image.Image:
    return Image.new("RGB", size, (200, 10, 10)).convert(mode)


def paletted(colours: list[int]) -> Image.Image:
    image = Image.new("P", (2, 2), 1)
    image.putpalette(colours)
    return image


DIFFERENT = {
    "a text split": [["ab"], ["a", "b"]],
    "separators in a text": [["a\0b"], ["a", "b"], ["a\nb"], ["a,b"], ['a", "b']],
    "types of a value": [[{"raw": value}] for value in (1, "1", 1.0, True, b"1", None, [1], (1,), np.int64(1), "None")],
    "texts and bytes": [["a"], [b"a"]],
    "order": [["a", "b"], ["b", "a"]],
    "repetition": [["a"], ["a", "a"]],
    "keys": [[{"text": "a", "text_pair": "b"}], [{"text": "b", "text_pair": "a"}], [{"text": "a"}]],
    "nesting": [[("a", "b")], [["a", "b"]], [("a",), ("b",)], [{"a": "b"}]],
    "dtypes": [[np.zeros(4, kind)] for kind in ("float32", "float64", ">f4", "int32", "uint8", "bool", "complex64")],
    "shapes": [[np.zeros(shape)] for shape in ((6,), (2, 3), (3, 2), (1, 6), (0,), (0, 2))],
    "objects": [[np.array(["a", "b"], object)], [np.array(["a", "c"], object)], [np.array([["a", "b"]], object)]],
    "the middle of an array": [[np.arange(10**5)], [np.where(np.arange(10**5) == 5 * 10**4, 0, np.arange(10**5))]],
    "tensors": [[torch.zeros(3, dtype=kind)] for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int8)],
    "the middle of a tensor": [[torch.arange(10**5)], [torch.arange(10**5).index_fill(0, torch.tensor([500]), 0)]],
    "modes of images": [[red(mode)] for mode in ("RGB", "RGBA", "L", "1", "CMYK")],
    "sizes of images": [[red("L")], [red("L", (3, 2))], [red("L", (6, 1))]],
    "pixels of images": [[Image.new("L", (2, 2), 1)], [Image.new("L", (2, 2), 2)]],
    "palettes of images": [[paletted([0, 0, 0, 9, 9, 9])], [paletted([0, 0, 0, 9, 9, 8])]],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_contents_have_different_digests(name):
    digests = [digest(*items) for items in DIFFERENT[name]]
    assert len(set(digests)) == len(digests)


EQUAL = {
    "order of keys": [{"text": "a", "text_pair": "b"}, {"text_pair": "b", "text": "a"}],
    "strings of numpy": ["a", np.str_("a")],
    "strides": [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(12)[::2].reshape(2, 3) // 2,
    ],
    "objects": [np.array([str(900 + 1)], object), np.array(["901"], object)],
    "gradients": [torch.ones(3), torch.ones(3, requires_grad=True), torch.ones(6)[::2]],
    "copies of an image": [red("RGB"), red("RGB").copy()],
    "lone surrogates": ["\ud800", "\ud800"],
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_contents_have_equal_digests(name):
    assert len({digest(item) for item in EQUAL[name]}) == 1


def test_an_image_from_a_file_is_the_image(tmp_path):
    red("RGB").save(tmp_path / "red.png")
    assert digest(Image.open(tmp_path / "red.png")) == digest(red("RGB"))


def test_a_table_counts_with_its_middle_and_its_columns():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": range(500), "b": "x"})
    changed = table.copy()
    changed.loc[250, "b"] = "y"
    renamed = table.rename(columns={"a": "c"})
    digests = [digest({"table": part, "query": "who?"}) for part in (table, table.copy(), changed, renamed)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_other_objects_count_by_what_they_show():
    class Shown:
        def __init__(self, text: str) -> None:
            self.text = text

        def __repr__(self) -> str:
            return f"Shown({self.text})"

    assert digest(Shown("a")) == digest(Shown("a"))
    assert digest(Shown("a")) != digest(Shown("b"))
    assert digest(Shown("a")) != digest("Shown(a)")


def test_importing_it_leaves_the_heavy_libraries_alone():
    command = (
        "import sys, fastpipe.precision.calibration; print({'torch', 'datasets', 'pandas', 'PIL'} & set(sys.modules))"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "set()"


def test_calibration_is_made_of_two_values():
    data = Calibration(items=("a",), digest="0")
    assert data.items == ("a",)
    assert "digest" in repr(data)
