"""files.py: names that would leave the folder, and writes that are wholly there or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kinfolk.errors import FolderError
from kinfolk.files import atomic_folder, atomic_write, inside, lock_file, read_json, write_bytes

ESCAPES = ["", "..", "../x", "a/../../x", "/etc/passwd", "~/x", "a\0b", "\ud800", "loop", "out", "out/file", "deep/out"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    (folder / "file").write_text("ours")
    (folder / "loop").symlink_to("loop")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "deep" / "out").symlink_to("../../outside/file")
    (folder / "link").symlink_to("file")
    return folder


@pytest.mark.parametrize("name", ESCAPES, ids=ascii)
def test_a_name_that_leaves_the_folder_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(FolderError, match="refused"):
        inside(folder, name)


@pytest.mark.parametrize("name", ["file", "link", "deep/new", "./file", "not/yet/there"])
def test_a_name_within_the_folder_is_joined(folder: Path, name: str) -> None:
    assert inside(folder, name) == folder / name


def test_only_links_into_the_blobs_of_the_same_hub_cache_may_leave_a_snapshot(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "model" / "snapshots" / "abc", tmp_path / "model" / "blobs"
    other = tmp_path / "other" / "blobs"
    for parent in (snapshot, blobs, other):
        parent.mkdir(parents=True)
    for parent in (blobs, other):
        (parent / "123").write_text("{}")
    (snapshot / "good.json").symlink_to("../../blobs/123")
    (snapshot / "bad.json").symlink_to(other / "123")
    assert read_json(inside(snapshot, "good.json")) == {}
    with pytest.raises(FolderError, match="leaves the folder"):
        inside(snapshot, "bad.json")


class StoppedError(Exception):
    """Stands for anything that ends a write half way."""


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def half_a_write() -> None:
        with atomic_write(path) as stream:
            stream.write(b"half of the n")
            stream.flush()
            assert path.read_bytes() == b"old"
            raise StoppedError

    with pytest.raises(StoppedError):
        half_a_write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from kinfolk.errors import FolderError
from kinfolk.files import write_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_bytes(Path(sys.argv[1]), bytes(12_345))
except FolderError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_old_file_and_names_path_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=True)
    assert str(path) in done.stdout
    assert "12,345 bytes are needed" in done.stdout
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_written_has_the_rights_that_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "file", b"")
        with atomic_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_bytes(tmp_path / "file", b"")
    (tmp_path / "folder" / "full").mkdir(parents=True)
    for path in (tmp_path / "file" / "below", tmp_path / "folder", tmp_path / ("x" * 300)):
        with pytest.raises(FolderError, match="cannot be written"):
            write_bytes(path, b"content")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "below" / "model"

    def half_a_folder() -> None:
        with atomic_folder(path) as temporary:
            write_bytes(temporary / "one", b"1")
            assert not path.exists()
            raise StoppedError

    with pytest.raises(StoppedError):
        half_a_folder()
    assert os.listdir(path.parent) == []
    with atomic_folder(path) as temporary:
        write_bytes(temporary / "sub" / "one", b"1")
    assert (path / "sub" / "one").read_bytes() == b"1"
    assert os.listdir(path.parent) == ["model"]


def test_a_new_folder_takes_the_place_of_an_empty_one_only(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with atomic_folder(tmp_path / "empty") as temporary:
        write_bytes(temporary / "one", b"1")
    with pytest.raises(FolderError, match="already exists"), atomic_folder(tmp_path / "empty"):
        pass
    assert (tmp_path / "empty" / "one").exists()


def test_a_lock_is_refused_to_others_and_freed_when_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = f"import pathlib, time, kinfolk.files as f; held = f.lock_file(pathlib.Path({str(path)!r})); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code]) as holder:
        while not (path.exists() and path.read_text() == str(holder.pid)):
            assert holder.poll() is None
            time.sleep(0.01)
        with pytest.raises(FolderError, match=rf"process {holder.pid}\b"):
            lock_file(path)
        assert path.read_text() == str(holder.pid)
        holder.kill()
    lock = lock_file(path)
    with pytest.raises(FolderError, match=str(os.getpid())):
        lock_file(path)
    lock.release()
    lock_file(path).release()
    with pytest.raises(FolderError, match="cannot be written"):
        lock_file(path / "lock")
