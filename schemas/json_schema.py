"""JSON Schema (draft 7) from structs; pure.

`extra_json_schema` in the annotation of a field replaces what would be made of it; so can be said what a type cannot say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Iterable

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
Schema = dict[str, object]
Shape = type[msgspec.Struct]


def link(name: str) -> Schema:
    """Return the schema that refers to a definition."""
    return {"$ref": f"#/definitions/{name}"}


class Definitions:
    """The definitions of structs, each made once.

    `anything` is the schema of a value of any kind, `always` names members that must be there in spite of a default.
    """

    anything: Schema = {}
    always: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.made: Schema = {}

    def ref(self, shape: Shape) -> Schema:
        """Return the link to the definition of a struct.

        Raises:
            TypeError: a field has a type of which nothing can be said.
        """
        info = inspect.type_info(shape)
        assert isinstance(info, inspect.StructType)
        return self._of_struct(info)

    def _of_struct(self, info: inspect.StructType) -> Schema:
        name = info.cls.__name__
        if name not in self.made:
            self.made[name] = {}
            self.made[name] = self._definition(info)
        return link(name)

    def _definition(self, info: inspect.StructType) -> Schema:
        hidden = cast("tuple[str, ...]", getattr(info.cls, "unpublished", ()))
        one_of = cast("tuple[str, ...]", getattr(info.cls, "one_of", ()))
        fields = [field for field in info.fields if field.encode_name not in hidden]
        properties: Schema = {field.encode_name: self._of(field.type) for field in fields}
        required = [f.encode_name for f in fields if f.required or f.encode_name in self.always]
        if info.tag_field is not None:
            properties = {info.tag_field: {"const": info.tag}, **properties}
            required.insert(0, info.tag_field)
        made: Schema = {"type": "object"}
        if info.forbid_unknown_fields:
            made["additionalProperties"] = False
        made["properties"] = properties
        if required:
            made["required"] = required
        if one_of:
            made["anyOf"] = [{"required": [name]} for name in one_of]
        return made

    def _of(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.Metadata():
                said = cast("Schema | None", kind.extra_json_schema)  # pyright: ignore[reportUnknownMemberType]
                return said or self._of(kind.type)
            case inspect.StructType():
                return self._of_struct(kind)
            case inspect.UnionType(types=types):
                return _any_of([self._of(one) for one in types])
            case inspect.ListType() | inspect.VarTupleType():
                made: Schema = {"type": "array", "items": self._of(kind.item_type)}
                return bounded(made, "Items", kind.min_length, kind.max_length)
            case inspect.DictType(value_type=value):
                inner_schema = self._of(value)
                return {
                    "type": "object",
                    **({"additionalProperties": inner_schema} if inner_schema else {}),
                }
            case _:
                return self.scalar(kind)

    def scalar(self, kind: inspect.Type) -> Schema:
        """Return the schema of a type that has no other one in it."""
        match kind:
            case inspect.AnyType():
                return self.anything
            case inspect.CustomType() if kind.cls is object:
                return self.anything
            case _:
                return _of_scalar(kind)


def _of_scalar(kind: inspect.Type) -> Schema:
    match kind:
        case inspect.StrType():
            return bounded({"type": "string"}, "Length", kind.min_length, kind.max_length)
        case inspect.IntType():
            return bounded({"type": "integer"}, "imum", kind.ge, kind.le)
        case inspect.FloatType():
            return bounded({"type": "number"}, "imum", kind.ge, kind.le)
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.NoneType():
            return {"type": "null"}
        case inspect.LiteralType(values=(only,)):
            return {"const": only}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case _:
            raise TypeError(f"{kind} has no JSON Schema")


def bounded(made: Schema, what: str, low: float | None, high: float | None) -> Schema:
    """Add the bounds that there are to a schema, and return it."""
    if low is not None:
        made[f"min{what}"] = low
    if high is not None:
        made[f"max{what}"] = high
    return made


def _any_of(found: Iterable[Schema]) -> Schema:
    schemas = list(found)
    return {} if {} in schemas else {"anyOf": schemas}
