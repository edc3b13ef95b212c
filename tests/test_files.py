import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from algnn.files import replacing


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted():
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_missing_folders_are_made_and_the_umask_is_kept(tmp_path):
    path = tmp_path / "b" / "c" / "a.txt"
    plain = tmp_path / "plain"
    plain.write_text("x")
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    """A real process rewrites a file as fast as it can and is killed at some moment."""
    path = tmp_path / "a.bin"
    script = textwrap.dedent(
        """
        import itertools, sys
        from algnn.files import replacing
        for i in itertools.count():
            with replacing(sys.argv[1]) as temporary:
                with open(temporary, "wb") as file:
                    for _ in range(64):
                        file.write(bytes([i % 256]) * 4096)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)])
    try:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    content = path.read_bytes()
    assert len(content) == 64 * 4096
    assert len(set(content)) == 1
