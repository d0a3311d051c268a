"""Runs in the environment: reads text on stdin and says whether it is what it should be.

messages.py yaml              YAML, one document or more
messages.py message NAME      JSON of that message of the contract, in the field names of the contract

Exit code 0; 1 with one line on stderr that says why it is not.
"""

from __future__ import annotations

import sys
from pathlib import Path


def yaml(text: str) -> None:
    """Raises an error when this is no YAML, or nothing."""
    import yaml as reader

    documents = [document for document in reader.safe_load_all(text) if document is not None]
    if not documents:
        raise ValueError("the block holds nothing")
    if any(isinstance(document, str) for document in documents):
        raise ValueError("the block is plain text, neither a mapping nor a list")


def message(name: str, text: str, stubs: Path) -> None:
    """Raises an error when this is not the message in JSON. Names must be those of the contract's file."""
    sys.path.insert(0, str(stubs))
    import json

    import camera_ai_pb2
    from google.protobuf import json_format

    made = getattr(camera_ai_pb2, name)()
    json_format.Parse(text, made, ignore_unknown_fields=False)
    again = json_format.MessageToDict(
        made, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    compare(json.loads(text), again, name)


def compare(written: object, known: object, where: str) -> None:
    """The parser takes lowerCamelCase too; the page is to show the names as they are in the file."""
    if isinstance(written, dict) and isinstance(known, dict):
        for key, value in written.items():
            if key not in known:
                raise ValueError(f"{where} has no field {key!r}; write it as in the contract's file")
            compare(value, known[key], f"{where}.{key}")
    elif isinstance(written, list) and isinstance(known, list):
        for at, (one, other) in enumerate(zip(written, known, strict=True)):
            compare(one, other, f"{where}[{at}]")


def main(arguments: list[str]) -> int:
    """See above."""
    text = sys.stdin.read()
    try:
        if arguments[0] == "yaml":
            yaml(text)
        else:
            message(arguments[1], text, Path(arguments[2]))
    except Exception as error:  # noqa: BLE001 - whatever a parser says is the answer
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
