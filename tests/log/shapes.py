"""The message classes of shapes.proto, in a pool of their own."""

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@lru_cache(maxsize=1)
def _pool() -> Any:
    from grpc_tools import protoc

    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "shapes.bin"
        include = Path(protoc.__file__).parent / "_proto"
        assert (
            protoc.main(
                [
                    "",
                    f"-I{here}",
                    f"-I{include}",
                    "--include_imports",
                    f"--descriptor_set_out={out}",
                    "shapes.proto",
                ]
            )
            == 0
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


@lru_cache(maxsize=16)
def shape(name: str) -> Any:
    """The class of that name."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"shapes.{name}"))
