from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algnn.errors import DatasetError, InputError
from algnn.graph.tables import read_features
from algnn.labels import check_table, read_labels, read_nodes, write_table


def table(folder: Path, text: str | bytes, name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# -- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nodes", "labels"),
    [
        ("node,label\n2,7\n0,-3\n", [2, 0], [7, -3]),
        ("node,label\n2,7\n0,fine\n", [2, 0], ["7", "fine"]),
        # numbers that are names: one would lose its zeros, the other does not fit
        ("node,label\n2,007\n0,8\n", [2, 0], ["007", "8"]),
        (f"node,label\n1,{10**20}\n", [1], [str(10**20)]),
        # a column with gaps, as pandas writes it; a half is a name
        ("node,label\n2,7.0\n0,3.0\n1,\n3,-1\n", [2, 0], [7, 3]),
        ("node,label\n2,7.0\n0,-1.0\n", [2], [7]),
        ("node,label\n2,7.5\n0,3.0\n", [2, 0], ["7.5", "3.0"]),
        ("node,label\n2,True\n0, False\n1,\n", [2, 0], [1, 0]),
        ("node,label\n2,True\n0,maybe\n", [2, 0], ["True", "maybe"]),
        # any order of columns, and more of them: a table of predictions is one of labels
        ("label,probability,node\na,0.5,04\n", [4], ["a"]),
        # what spreadsheets write
        ("\ufeffnode,label\r\n3,caf\u00e9\r\n\r\n", [3], ["caf\u00e9"]),
        ('node,label\n 3 , "a, b"\n'.replace(' "', '"'), [3], ["a, b"]),
        ("node, label \n1,two words\n,\n", [1], ["two words"]),
    ],
)
def test_reading(text: str, nodes: list[int], labels: list[Any], tmp_path: Path) -> None:
    found, classes, _ = read_labels(table(tmp_path, text), num_nodes=5)
    assert found.dtype == np.int64
    assert (found.tolist(), classes.tolist()) == (nodes, labels)
    assert classes.dtype.kind == ("U" if isinstance(labels[0], str) else "i")


def test_rows_without_a_label_are_counted_or_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "node,label\n2,7\n0,\n1,-1\n")
    assert read_labels(path, 5)[2] == 2
    with pytest.raises(InputError, match="line 3: node 0 has no label: give the one it has"):
        read_labels(path, 5, every=True)
    assert read_labels(table(tmp_path, "node,label\n2,7\n"), 5, every=True)[2] == 0


def test_a_label_that_numpy_would_cut_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a label is 'a\\x00', which ends in NUL"):
        read_labels(table(tmp_path, "node,label\n0,a\n1,a\0\n"), 5)


def test_labels_are_of_the_kind_that_the_model_knows(tmp_path: Path) -> None:
    path = table(tmp_path, "node,label\n2,7\n")
    assert read_labels(path, 5, np.array(["7", "x"]))[1].tolist() == ["7"]
    assert read_labels(path, 5, np.array([1, 2]))[1].tolist() == [7]


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 1234567890123456789])
def test_whole_numbers_of_64_bits_are_ints(tmp_path: Path, number: int) -> None:
    path = table(tmp_path, f"node,label\n2,{number}\n3,{number}.0\n")
    assert read_labels(path, 5)[1].tolist() == [number, number]
    path = table(tmp_path, f"node,label\n2,{10 * number}\n")
    assert read_labels(path, 5)[1].tolist() == [str(10 * number)]


def test_labels_are_spelled_as_the_model_knows_them(tmp_path: Path) -> None:
    path = table(tmp_path, "node,label\n2,1.0\n0,fair \n1,False\n3, True\n4,-1.0\n")
    known = np.array(["1", "2", "fair ", "False", "-1"])
    assert read_labels(path, 5, known)[1].tolist() == ["1", "fair ", "False", "1", "-1"]
    assert read_labels(path, 5, np.array(["1.0", "x"]))[1].tolist() == [
        "1.0",
        "fair",
        "False",
        "True",
    ]


def test_bools_of_parquet_are_those_of_csv(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "labels.parquet"
    pandas.DataFrame({"node": [1, 2], "label": [True, False]}).to_parquet(path)
    assert read_labels(path, 5)[1].tolist() == [1, 0]
    assert read_labels(path, 5, np.array(["False", "True"]))[1].tolist() == ["True", "False"]


def test_nodes_alone(tmp_path: Path) -> None:
    path = table(tmp_path, "node,remark\n4,look\n2,\n")
    assert read_nodes(path, 5).tolist() == [4, 2]


# -- what is refused, and where -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,label\n0,a\n7,b\n", "line 3: node 7 is not in the graph, whose ids are 0 … 4"),
        ("node,label\n-1,a\n", "line 2: node -1 is not in the graph"),
        (f"node,label\n{'9' * 5000},a\n", "line 2: node 9{20} is not in the graph"),
        ("node,label\n0,a\n\n1,b\n0,c\n", "line 5: node 0 was named before, in line 2"),
        ("node,label\n0,a\n00,c\n", "line 3: node 0 was named before"),
        ("node,label\n0.0,a\n", "line 2: node is '0.0': give its id"),
        ("node,label\none,a\n", "line 2: node is 'one'"),
        ("node,label\n٣,a\n", "line 2: node is '٣'"),
        ("node,label\n0,\n1,-1\n", "no row has a label"),
        ("node,label\n0,a\n1,b,c\n", "line 3: has 3 cells and the header 2: .* quotes"),
        ("node,label\n0\n", "line 2: has 1 cells"),
        ("node;label\n0;a\n", "its header is 'node;label': it must hold node and label"),
        ("0,a\n1,b\n", "its header is '0,a'"),
        ("node,label,label\n0,a,b\n", "once each"),
        ("node,label\n", "names no node"),
        ("", "its header is ''"),
        (b"node,label\n0,caf\xe9\n", "is not text in UTF-8"),
        (b"\x89PNG\r\n\x1a\n", "is not text in UTF-8"),
        (f"node,label\n0,{'a' * 200_000}\n", "line 2: is not CSV"),
        ('node,label\n0,a\n1,"b\n2,a\n3,b\n', "line 5: is not CSV .*: close every quote"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    text: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_labels(table(tmp_path, text), num_nodes=5)
    assert str(tmp_path / "labels.csv") in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_labels(tmp_path / "absent.csv", 5)
    with pytest.raises(InputError, match="cannot be read"):
        read_labels(tmp_path, 5)


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"node,label\n0,a\n")
    os.close(write)
    try:
        with pytest.raises(InputError, match=f"/dev/fd/{read} is a pipe.* read twice: write it to"):
            check_table(f"/dev/fd/{read}", "node", "label")
        with pytest.raises(DatasetError, match=f"/dev/fd/{read} is a pipe.* read twice: write it"):
            read_features(f"/dev/fd/{read}", tmp_path)
    finally:
        os.close(read)


@given(st.binary(max_size=60))
def test_no_bytes_break_it(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = table(tmp_path_factory.getbasetemp(), b"node,label\n" + noise)
    try:
        nodes, labels, _ = read_labels(path, 9)
    except InputError:
        return
    assert 1 <= len(nodes) == len(labels) == len(set(nodes.tolist()))


# -- what is written ------------------------------------------------------------------------------

COLUMNS = {
    "node": np.array([3, 0]),
    "label": np.array(["a, b", 'the "c"']),
    "probability": np.array([0.123456789, 1.0]),
}


def test_csv_goes_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.csv"
    write_table(path, [COLUMNS])
    assert path.read_text() == ('node,label,probability\n3,"a, b",0.123457\n0,"the ""c""",1\n')
    nodes, labels, _ = read_labels(path, 4)
    assert (nodes.tolist(), labels.tolist()) == ([3, 0], COLUMNS["label"].tolist())
    assert [file.name for file in path.parent.iterdir()] == ["out.csv"]


def test_a_table_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = table(tmp_path, "old", "out.csv")
    with pytest.raises(ValueError, match="same length"):
        write_table(path, [{**COLUMNS, "short": np.zeros(1)}])
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.csv")
    with pytest.raises(InputError, match=r"out\.csv is a folder, a pipe or a device: "):
        write_table(tmp_path / "out.csv", [COLUMNS])
    assert (tmp_path / "out.csv").is_fifo()
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


def test_parquet_goes_there_and_back(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pandas as pd

    path = tmp_path / "out.parquet"
    write_table(path, [COLUMNS])
    nodes, labels, _ = read_labels(path, 4)
    assert (nodes.tolist(), labels.tolist()) == ([3, 0], COLUMNS["label"].tolist())
    assert pd.read_parquet(path)["probability"].tolist() == [0.123456789, 1.0]
    write_table(path, [{"node": np.array([3, 0]), "label": np.array([7, 8])}])
    assert read_labels(path, 4)[1].tolist() == [7, 8]

    pd.DataFrame({"node": [3, 0], "label": ["a", None]}).to_parquet(path)
    nodes, labels, _ = read_labels(path, 4)
    assert (nodes.tolist(), labels.tolist()) == ([3], ["a"])
    # a gap makes floats of whole numbers
    pd.DataFrame({"node": [3, 0, 1], "label": [7, None, -1]}).to_parquet(path)
    nodes, labels, _ = read_labels(path, 4)
    assert (nodes.tolist(), labels.tolist()) == ([3], [7])
    pd.DataFrame({"node": [3, 9], "label": ["a", "b"]}).to_parquet(path)
    with pytest.raises(InputError, match="row 2: node 9 is not in the graph"):
        read_labels(path, 4)
    whole = path.read_bytes()
    for damaged in (b"", b"PAR1", whole[:-20], whole[10:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="is not a whole Parquet file"):
            read_labels(path, 4)
    with pytest.raises(InputError, match="there is no such file"):
        read_labels(tmp_path / "absent.parquet", 4)


def test_without_pyarrow_parquet_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_process: Callable[..., str]
) -> None:
    """In a process that cannot import it, whatever is installed here."""
    code = """
import sys
sys.modules["pyarrow"] = None
import numpy as np
from algnn.errors import InputError
from algnn.labels import read_labels, write_table
for call in (lambda: read_labels("a.parquet", 3), lambda: write_table("b.pq", [{"n": np.ones(1)}])):
    try:
        call()
    except InputError as error:
        print(error)
"""
    monkeypatch.chdir(tmp_path)
    lines = run_process(code).splitlines()
    assert [line.split(":")[0] for line in lines] == ["a.parquet", "b.pq"]
    assert all("install algnn[parquet], or use a .csv file" in line for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [2**63 - 1, 1234567890123456789])
def test_a_gap_in_parquet_changes_no_number(tmp_path: Path, number: int) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"node": [1, 2, 3], "label": [number, None, 7]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "labels.parquet")
    nodes, labels, without = read_labels(tmp_path / "labels.parquet", 5)
    assert (nodes.tolist(), labels.tolist(), without) == ([1, 3], [number, 7], 1)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_floats_in_parquet_that_may_be_rounded_are_no_labels(tmp_path: Path, kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path, most = tmp_path / "labels.parquet", 2**24 if kind == "float32" else 2**53
    for label in (most, most - 1):
        table = pandas.DataFrame({"node": [1, 2], "label": [label, 7]}).astype({"label": kind})
        table.to_parquet(path)
        if label < most:
            assert read_labels(path, num_nodes=5)[1].tolist() == [label, 7]
            continue
        with pytest.raises(InputError, match="its type of float may have rounded"):
            read_labels(path, num_nodes=5)


def test_bytes_in_parquet_are_text(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "labels.parquet"
    pandas.DataFrame({"node": [1, 2], "label": [b"cat", b"dog"]}).to_parquet(path)
    assert read_labels(path, num_nodes=5)[1].tolist() == ["cat", "dog"]
    # two classes, which would look the same once what is no text is replaced
    pandas.DataFrame({"node": [1, 2], "label": [b"caf\xe9", b"caf\xe8"]}).to_parquet(path)
    with pytest.raises(InputError, match=r"labels\.parquet is not text in UTF-8"):
        read_labels(path, num_nodes=5)
