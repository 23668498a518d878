"""Digests of files that did not change: given from memory, and never for one that may have changed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from fastpipe.artifacts import digests
from fastpipe.artifacts.digests import digest_of_known_file
from fastpipe.artifacts.spec import digest_of_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is kept there")

SIZE = digests._LARGE


@pytest.fixture
def hashed(monkeypatch):
    """The files that were really read."""
    read = []

    def counted(path: Path) -> str:
        read.append(path.name)
        return digest_of_file(path)

    monkeypatch.setattr(digests, "digest_of_file", counted)
    return read


@pytest.fixture
def settled(monkeypatch):
    monkeypatch.setattr(digests, "_SETTLED_NS", -1)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"a" * SIZE)
    return path


def test_a_file_that_did_not_change_is_read_once(file, tmp_path, hashed, settled):
    found = {digest_of_known_file(file, tmp_path / "notes") for _ in range(3)}
    assert found == {digest_of_file(file)}
    assert hashed == ["weights.bin"]


def test_a_file_with_its_old_size_and_date_is_seen_to_have_changed(file, tmp_path, hashed, settled):
    before, dates = digest_of_known_file(file, tmp_path / "notes"), file.stat()
    time.sleep(0.02)  # a tick of the file system's clock
    with file.open("r+b") as opened:
        opened.write(b"b")
    os.utime(file, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    assert file.stat().st_mtime_ns == dates.st_mtime_ns
    after = digest_of_known_file(file, tmp_path / "notes")
    assert after == digest_of_file(file) != before


def test_another_file_in_its_place_is_seen(file, tmp_path, hashed, settled):
    before, dates = digest_of_known_file(file, tmp_path / "notes"), file.stat()
    other = tmp_path / "other"
    other.write_bytes(b"c" * SIZE)
    os.utime(other, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    os.replace(other, file)
    assert digest_of_known_file(file, tmp_path / "notes") == digest_of_file(file) != before


def test_a_file_that_was_just_written_is_not_trusted(file, tmp_path, hashed):
    for _ in range(2):
        digest_of_known_file(file, tmp_path / "notes")
    assert len(hashed) == 2
    assert not (tmp_path / "notes").exists()


@pytest.mark.parametrize("note", ["", "{", "[]", '{"file": 1}', '{"sha256": "0"}'])
def test_a_damaged_note_is_no_note(file, tmp_path, hashed, settled, note):
    notes = tmp_path / "notes"
    digest_of_known_file(file, notes)
    (kept,) = notes.iterdir()
    kept.write_text(note)
    assert digest_of_known_file(file, notes) == digest_of_file(file)
    assert len(hashed) == 2


def test_small_files_are_just_read(tmp_path, hashed, settled):
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")
    assert digest_of_known_file(path, tmp_path / "notes") == digest_of_file(path)
    assert not (tmp_path / "notes").exists()


def test_memory_that_cannot_be_written_to_costs_nothing(file, tmp_path, settled):
    nowhere = tmp_path / "a file"
    nowhere.write_text("")
    assert digest_of_known_file(file, nowhere / "notes") == digest_of_file(file)
