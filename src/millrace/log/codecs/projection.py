"""Message types with some of the fields of another, so that a parser skips all others.

A job over positions needs three of sixteen fields. Protobuf marks each field with its number, and a parser
steps over numbers that its message type does not have. So records are parsed by a type with the fields that
are wanted, under their own numbers:

    message VehiclePosition { string vehicle_id = 1; … double latitude = 3; double longitude = 4; … }
    message Fields          { string vehicle_id = 1;   double latitude = 3; double longitude = 4; }

An envelope holds an event as bytes. On the wire, bytes look like a message. So a type whose details hold
`Fields` where `Any` holds bytes parses envelope and event at once, and copies no bytes in between:

    message Event   { Timestamp event_timestamp = 1; Timestamp ingestion_timestamp = 2; Details details = 3; }
    message Details { string type_url = 1; Fields value = 2; }

The two ways differ for an envelope that holds details twice. Protobuf merges messages, and takes the last of
several bytes. No encoder writes such envelopes.
"""

from functools import lru_cache
from typing import cast

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from millrace.log.codecs import event_pb2
from millrace.values import event_types

_PACKAGE = "millrace.projected"
_SYNTAXES = ("", "proto2", "proto3")
_ENVELOPE_FIELDS = ("event_timestamp", "ingestion_timestamp")


@lru_cache(maxsize=512)
def fields_of(event_type: type, names: frozenset[str] | None) -> Descriptor:
    """The message with those fields of an event type, and with the others of their oneofs.

    The event type itself if all are wanted (None), or if it cannot be cut: in a schema with editions, options
    of the file decide what a field means.
    """
    whole = event_types.descriptor(event_type)
    file = FileDescriptorProto()
    whole.file.CopyToProto(file)
    kept = _with_oneofs(whole, names)
    if len(kept) == len(whole.fields) or file.syntax not in _SYNTAXES:
        return whole
    projected = FileDescriptorProto(
        name=f"millrace/projected/{whole.full_name}.proto",
        package=_PACKAGE,
        syntax=file.syntax or None,
        dependency=[whole.file.name, *(each.name for each in whole.file.dependencies)],
    )
    _add_fields(projected.message_type.add(name="Fields"), whole, kept)
    return _add_file(projected, whole.file).FindMessageTypeByName(f"{_PACKAGE}.Fields")


@lru_cache(maxsize=512)
def envelope_of(event_type: type, names: frozenset[str] | None, panes: bool) -> Descriptor:
    """The envelope that holds those fields of an event type, with or without the pane."""
    fields = fields_of(event_type, names)
    file, whole = FileDescriptorProto(), cast("Descriptor", event_pb2.Event.DESCRIPTOR)
    file.name, file.package, file.syntax = "millrace/projected/event.proto", _PACKAGE, "proto3"
    file.dependency.extend(
        {fields.file.name, *(each.name for each in (whole.file, *whole.file.dependencies))}
    )
    details = file.message_type.add(name="Details")
    details.field.add(
        name="type_url",
        number=1,
        type=FieldDescriptorProto.TYPE_STRING,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    details.field.add(
        name="value",
        number=2,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{fields.full_name}",
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    envelope = file.message_type.add(name="Event")
    _add_fields(envelope, whole, {*_ENVELOPE_FIELDS, "details", *(("pane",) if panes else ())})
    for field in envelope.field:
        if field.name == "details":
            field.type_name = f".{_PACKAGE}.Details"
    return _add_file(file, fields.file, whole.file).FindMessageTypeByName(f"{_PACKAGE}.Event")


def _with_oneofs(whole: Descriptor, names: frozenset[str] | None) -> set[str]:
    """The fields to keep. Of the fields of a oneof, the last on the wire counts, so they stay together.

    At least one is kept: Arrow does not tell how many rows a struct without fields has.
    """
    if names is None:
        return {field.name for field in whole.fields}
    kept = {field.name for field in whole.fields if field.name in names} or {whole.fields[0].name}
    for oneof in whole.oneofs:
        members = {field.name for field in oneof.fields}
        kept |= members if members & kept else set()
    return kept


def _add_fields(message: DescriptorProto, whole: Descriptor, names: set[str]) -> None:
    """Copies fields with their numbers, the oneofs that they are in, and the types of their map entries."""
    source = DescriptorProto()
    whole.CopyToProto(source)
    fields = [field for field in source.field if field.name in names]
    oneofs = sorted({field.oneof_index for field in fields if field.HasField("oneof_index")})
    message.oneof_decl.extend(source.oneof_decl[index] for index in oneofs)
    entries = {f".{whole.full_name}.{nested.name}": nested for nested in source.nested_type}
    for field in fields:
        if field.HasField("oneof_index"):
            field.oneof_index = oneofs.index(field.oneof_index)
        entry = entries.get(field.type_name)
        if entry is not None and entry.options.map_entry:
            message.nested_type.add().CopyFrom(entry)
            field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"
        message.field.add().CopyFrom(field)


def _add_file(file: FileDescriptorProto, *dependencies: FileDescriptor) -> DescriptorPool:
    """A pool with a file and all that it needs."""
    pool = DescriptorPool()
    added: set[str] = set()

    def add(dependency: FileDescriptor) -> None:
        if dependency.name in added:
            return
        added.add(dependency.name)
        for each in dependency.dependencies:
            add(each)
        copied = FileDescriptorProto()
        dependency.CopyToProto(copied)
        pool.Add(copied)

    for dependency in dependencies:
        add(dependency)
    pool.Add(file)
    return pool
