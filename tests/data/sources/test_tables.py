"""CSV and Parquet files."""

import numpy as np
import pandas as pd
import pytest

from pfljax.data import federate, load

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


@pytest.mark.parametrize("name", ["age", "hospital", "diagnosis"])
def test_a_missing_value_is_refused(table, tmp_path, name):
    table[name] = table[name].astype(object)
    table.loc[2, name] = None
    table.to_csv(tmp_path / "study.csv", index=False)
    with pytest.raises(
        ValueError, match=r"NaN or infinity in 1|lacks a value in row 2"
    ):
        load("csv", path=str(tmp_path / "study.csv"), **COLUMNS)
