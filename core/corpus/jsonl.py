"""JSON lines: a text is a field of an object, one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bertpool.corpus.lines import byte_lines, not_utf8, without_end
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import CHOOSE_COLUMNS, Flaw, Record, UnreadableRecord, named, quoted
from bertpool.corpus.streams import Opened
from bertpool.errors import CorpusError

Fields = dict[str, object]
KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}


class JsonText(str):
    """A list or an object, as JSON text."""

    __slots__ = ()


class Missing:
    """Stands for a field that a record hasn't got; ``fields`` are those that it has."""

    def __init__(self, fields: list[str]) -> None:
        self.fields = fields


def read_jsonl(opened: Opened, options: CorpusOptions) -> Iterator[Record | Flaw]:
    """Yield the object of each line that isn't empty.

    Raises:
        CorpusError: the input isn't text in the encoding.
    """
    for number, line in enumerate(byte_lines(opened, options.encoding), start=1):
        raw = without_end(line)
        if raw.strip():
            yield _read_line(raw, number, options)


def check_jsonl(opened: Opened, options: CorpusOptions) -> None:
    """Check that the first object has the fields that every object must have.

    Raises:
        CorpusError: it hasn't, and nothing says that such records may be rejected.
    """
    if options.on_error == "reject":
        return
    for line in byte_lines(opened, options.encoding):
        if line.strip():
            _check_fields(without_end(line), opened.shown, options)
            return


def _check_fields(raw: bytes, shown: str, options: CorpusOptions) -> None:
    try:
        fields = _parse(raw)
    except UnreadableRecord:
        return  # reading will say so, with the line
    for name in (options.text_column, options.pair_column, options.id_column):
        if name is not None and name not in fields:
            raise CorpusError(
                f"{shown}: no field {quoted(name)}; {named(list(fields))}; {CHOOSE_COLUMNS}",
                usage=True,
            )


def _read_line(raw: bytes, number: int, options: CorpusOptions) -> Record | Flaw:
    try:
        fields = _parse(raw)
        return Record(
            text=_string(fields, options.text_column),
            line=number,
            pair=None if options.pair_column is None else _string(fields, options.pair_column),
            id=None if options.id_column is None else _identifier(fields, options.id_column),
            kept=tuple([_kept(fields, name) for name in options.keep]),
            raw=raw if options.has_extra else b"",
        )
    except UnreadableRecord as error:
        return error.flaw(number, raw)


def _parse(raw: bytes) -> Fields:
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise not_utf8(error) from error
    except json.JSONDecodeError as error:
        raise UnreadableRecord(f"not JSON: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        raise UnreadableRecord("a number of too many digits") from error
    except RecursionError as error:
        raise UnreadableRecord("JSON nested too deeply") from error
    if not isinstance(value, dict):
        raise UnreadableRecord(f"{KINDS[type(value)]}, not an object")
    return value


def _string(fields: Fields, name: str) -> str:
    value = _field(fields, name)
    if not isinstance(value, str):
        raise UnreadableRecord(f"field {quoted(name)} is {KINDS[type(value)]}, not a string")
    return _whole(value, name)


def _identifier(fields: Fields, name: str) -> int | str:
    value = _field(fields, name)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        kind = "not whole" if isinstance(value, float) else KINDS[type(value)]
        raise UnreadableRecord(f"field {quoted(name)} is {kind}, not an id (integer or string)")
    return _whole(value, name) if isinstance(value, str) else value


def _field(fields: Fields, name: str) -> object:
    if name not in fields:
        raise UnreadableRecord(f"no field {quoted(name)}; {named(list(fields))}")
    return fields[name]


def _kept(fields: Fields, name: str) -> object:
    if name not in fields:
        return Missing(list(fields))
    value = fields[name]
    if isinstance(value, (dict, list)):
        return JsonText(_whole(json_text(value), name))
    return _whole(value, name) if isinstance(value, str) else value


def json_text(value: object) -> str:
    """Write a value as JSON, characters as they are."""
    return json.dumps(value, ensure_ascii=False)


def _whole(text: str, name: str) -> str:
    r"""Return a string unless it holds half a character, which JSON can spell: ``"\ud83d"``."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnreadableRecord(
            f"field {quoted(name)} holds a lone surrogate, half a character"
        ) from error
    return text
