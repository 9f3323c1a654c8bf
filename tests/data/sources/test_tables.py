"""CSV and Parquet files."""

import numpy as np
import pandas as pd
import pytest

from pfljax.data import federate, load
from pfljax.data.sources import tables

COLUMNS = {"client": "hospital", "split": "part", "skip": "id", "label": "diagnosis"}


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(6)],
            "age": [30, 41, 52, 63, 74, 85],
            "hospital": ["b", "a", "b", "a", "b", "a"],
            "pressure": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5],
            "diagnosis": ["well", "ill", "ill", "well", "well", "ill"],
            "part": ["train", "train", "test", "validation", "train", "test"],
        }
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_are_examples_labels_clients_and_splits(table, tmp_path, kind):
    file = tmp_path / f"study.{kind}"
    getattr(table, f"to_{kind}")(file, index=False)
    arrays = load(kind, path=str(file), **COLUMNS)
    expected = table[["age", "pressure"]].to_numpy(np.float32)
    np.testing.assert_array_equal(arrays.x, expected)
    assert arrays.class_names == ("ill", "well")
    assert arrays.y.tolist() == [1, 0, 0, 1, 1, 0]
    found = federate(arrays, "natural", num_clients=None, seed=0)
    sizes = [part.size.tolist() for part in found.parts.values()]
    assert sizes == [[1, 2], [1, 0], [1, 1]]  # of the hospitals a and b


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_chunks_give_what_the_whole_table_gives(table, tmp_path, kind, monkeypatch):
    file = tmp_path / f"study.{kind}"
    getattr(table, f"to_{kind}")(file, index=False)
    whole = load(kind, path=str(file), **COLUMNS)
    monkeypatch.setattr(tables, "ROWS", 4)
    for one, other in zip(load(kind, path=str(file), **COLUMNS), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    table.loc[5, "diagnosis"] = None
    getattr(table, f"to_{kind}")(file, index=False)
    with pytest.raises(ValueError, match="'diagnosis' lacks a value in row 5"):
        load(kind, path=str(file), **COLUMNS)


def test_a_column_of_clients_groups_them_as_well(table, tmp_path):
    table["site"] = table["hospital"].map({"a": "north", "b": "south"})
    table.to_csv(tmp_path / "study.csv", index=False)
    options = COLUMNS | {"groups": "(site,hospital)"}
    arrays = load("csv", path=str(tmp_path / "study.csv"), **options)
    assert arrays.x.shape == (6, 2)
    found = federate(arrays, "natural", num_clients=None, seed=0)
    groups = {"site": ["north", "south"], "hospital": ["a", "b"]}
    assert found.manifest["groups"] == groups


def test_bytes_stay_bytes(table, tmp_path):
    pixels = table[["age", "diagnosis"]].astype({"age": np.uint8})
    pixels.to_parquet(tmp_path / "pixels.parquet")
    arrays = load("parquet", path=str(tmp_path / "pixels.parquet"), label="diagnosis")
    assert arrays.x.dtype == np.uint8
    assert arrays.x[:, 0].tolist() == table["age"].tolist()


def test_numbers_and_texts_in_one_column_are_refused(table, tmp_path, monkeypatch):
    # Else "007" of a chunk of numbers would be client 7.
    monkeypatch.setattr(tables, "ROWS", 4)
    table["hospital"] = ["007", "008", "007", "008", "007", "x"]
    table.to_csv(tmp_path / "study.csv", index=False)
    with pytest.raises(ValueError, match="'hospital' has numbers and texts"):
        load("csv", path=str(tmp_path / "study.csv"), **COLUMNS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"skip": "name"}, r"no column 'name'; it has id, age"),
        ({"skip": ""}, "column 'id' is not of numbers; .* skip=id"),
        ({"split": "hospital"}, "column 'hospital' has 'a'; expected train, test, val"),
        ({"path": "none.csv"}, "no file 'none.csv'"),
    ],
)
def test_what_is_no_table_of_examples_is_refused(table, tmp_path, change, message):
    table.to_csv(tmp_path / "study.csv", index=False)
    options = {**COLUMNS, "path": str(tmp_path / "study.csv")} | change
    if "split" in change:
        options |= {"client": None, "skip": "(id,part)"}
    with pytest.raises(ValueError, match=message):
        load("csv", **options)


@pytest.mark.parametrize(
    "change", [{"task": "regression"}, {"label": "(pressure,diagnosis)"}]
)
def test_texts_are_no_numbers(table, tmp_path, change):
    table["diagnosis"] = ["12,5", "0,5", "1,5"] * 2  # else ranks 1, 0, 2
    table.to_csv(tmp_path / "study.csv", index=False)
    options = COLUMNS | {"path": str(tmp_path / "study.csv")} | change
    with pytest.raises(ValueError, match="column 'diagnosis' has the text '12,5'"):
        load("csv", **options)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_without_rows_is_refused(table, tmp_path, kind):
    getattr(table.iloc[:0], f"to_{kind}")(tmp_path / "study", index=False)
    with pytest.raises(ValueError, match="it has no rows"):
        load(kind, path=str(tmp_path / "study"), **COLUMNS)


@pytest.mark.parametrize("name", ["age", "hospital", "diagnosis"])
def test_a_missing_value_is_refused(table, tmp_path, name):
    table[name] = table[name].astype(object)
    table.loc[2, name] = None
    table.to_csv(tmp_path / "study.csv", index=False)
    with pytest.raises(
        ValueError, match=r"NaN or infinity in 1|lacks a value in row 2"
    ):
        load("csv", path=str(tmp_path / "study.csv"), **COLUMNS)
