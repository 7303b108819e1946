from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from bertpool.corpus.columns import ValueColumns, make_columns
from bertpool.corpus.jsonl import JsonText, Missing
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import Record
from bertpool.errors import CorpusError


def learned(values: Sequence[object]) -> tuple[ValueColumns, list[Record]]:
    columns = ValueColumns(CorpusOptions(keep=("k",)))
    records = [Record("a", 1, kept=(value,)) for value in values]
    columns.learn(records)
    return columns, records


MISSING: Any = Missing(["text", "b"])


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([True, None, False], pa.bool_(), [True, None, False]),
        ([1, None, 2**62], pa.int64(), [1, None, 2**62]),
        ([1, 0.5], pa.float64(), [1.0, 0.5]),
        (["x", MISSING, "007"], pa.string(), ["x", None, "007"]),
        ([None, None], pa.string(), [None, None]),
        ([JsonText("[1]"), None], pa.string(), ["[1]", None]),
        ([1, "x", None, JsonText("[1]")], pa.string(), ["1", '"x"', None, "[1]"]),
        ([True, 1], pa.string(), ["true", "1"]),
        ([2**63], pa.string(), [str(2**63)]),
        ([2**53 + 1, 0.5], pa.string(), [str(2**53 + 1), "0.5"]),
    ],
    ids=str,
)
def test_a_column_has_the_narrowest_type_that_its_first_values_fit(
    values: list[object], kind: pa.DataType, expected: list[object]
) -> None:
    columns, records = learned(values)
    assert columns.schema() == pa.schema([("k", kind)])
    assert [columns.misfit(record) for record in records] == [None] * len(records)
    assert columns.table(records).column("k").to_pylist() == expected


@pytest.mark.parametrize(
    ("first", "later", "fits"),
    [
        (1, 2, True),
        (1, None, True),
        (1, MISSING, True),
        (1, 0.5, False),
        (1, 2**63, False),
        (1, True, False),
        (0.5, 1, True),
        (0.5, 2**53 + 1, False),
        ("x", 1, False),
        ("x", JsonText("[]"), False),
        (None, "x", True),
        (JsonText("[]"), "x", True),
    ],
    ids=str,
)
def test_a_later_value_must_fit_the_type(first: object, later: object, fits: bool) -> None:
    columns, _ = learned([first])
    assert (columns.misfit(Record("a", 2, kept=(later,))) is None) == fits


def test_a_field_that_no_first_record_has_is_refused_and_those_there_are_named() -> None:
    with pytest.raises(CorpusError, match=r'"k"; there are: "text", "b"') as caught:
        learned([MISSING, MISSING])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("first", "later"), [(7, "7"), ("7", 7), (2**70, 1)])
def test_ids_are_all_of_the_first_ones_type(first: object, later: object) -> None:
    columns = ValueColumns(CorpusOptions(id_column="doc"))
    columns.learn([Record("a", 1, id=first)])
    assert columns.misfit(Record("a", 2, id=later)) is not None


def test_no_columns_are_made_where_none_are_asked_for() -> None:
    assert make_columns(CorpusOptions(), ["lines"]) is None


def test_json_text_reads_back_as_what_it_was() -> None:
    values = ['a"b', 1, JsonText('{"é": [null]}')]
    columns, records = learned(values)
    back = [json.loads(text) for text in columns.table(records).column("k").to_pylist()]
    assert back == ['a"b', 1, {"é": [None]}]
