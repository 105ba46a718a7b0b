"""Murmur2 against the client whose hash it is."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.log import murmur2

ALL = 2**32 - 1

KAFKAS_OWN_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Those of `UtilsTest` in Kafka's sources."""

VECTORS_OF_THE_JAVA_CLIENT = {
    "": 275646681,
    "61": -1563381124,
    "32322f31313334": 676920960,
    "34302f3030343536": 550703016,
    "61206c6f6e676572206b657920746861742066696c6c73207365766572616c20776f726473": 680735010,
    "2d31": 1531782027,
    "39323233333732303336383534373735383037": -1221667907,
    "74727565": -1452041902,
    "48c3a46d65656e746965": -2035204058,
    "c3bc": 1419834458,
    "e697a5e69cac": -700811021,
    "bf": -515800169,
    "58cb": -107802838,
    "441a98": -1915548865,
    "e01ca09c": 1069984697,
    "15d9287dca": -46018140,
    "9cf63a764709": -1854199975,
    "3458d772528c74": -1765261173,
    "8f469db22fd7a8c0": 453123631,
    "17c21b4741e48258c9": -2015330576,
    "142dced654682038ce7c": -1155102455,
    "8340a0eb628745bb488dd4": 2022304244,
    "3a116d51d118d53838bf2553": 140090925,
    "93dd45e2356d390638d180706e": -1887153694,
    "c68c9364805dcea883c1a6fed981": -168076743,
    "5b09aae1d2863033d6727c48cd562d": -782622222,
    "e57b713fff46660f03d4f397e268517d": 543335840,
    "888508835704877f1cdfc313fb52b58daa": -572691303,
    "4c8f65564884ddae848e42d6ea4e6373577a": 716653361,
    "daedc35afa67edb950a3454d1b8c4d799f711c": -1607321594,
    "b037401dc6af8859c9af139777c33bb1cfe25aa0": -571409076,
    "c776d833c60739b9263dbb089de87a5255fa7b318b": 30708766,
    "6b4f7a3b0280a0fe3065d709cdb1305752701daf4889": 2093346885,
    "44134b95dd739de4c61a5dd5225883c4622d169e501f6d": -1305337452,
    "6ab38ca6ef99a04d33cc1a46e20878c5a866eab33fdcf077": 168742981,
    "69d6ccff975ba8c10954c67995776b1c360e7417230b20c0c7": 1841511728,
    "6ee217d001027d8f8b08e14ca01b437e82b099ec57d41bd60b9d": 164123744,
    "ec03d52e49c2e6901f0f3f073a0f319ff175332fc068b2cf11f6ff": 434272013,
    "6bf6ae6176e2bb286c8180c8690ca1f156e0997895e769949fceff15": 1946999840,
    "d7c10202f82c80abd5c8f392f90f7b70b87a8101b744e86977d4adc631": -376659302,
    "8b67af4bc88cf3eb104aaea41595f81c9ddf8fe0d5bd115357963098cfba": 536132456,
    "07332148d980408340f8cf0369cbedd3da275d554e76ad1e49e31ec592c991": 1312906267,
    "9896a7f88a0b4f5213b3a111a16d275fe5d9251566c26a4c338488d5daefd00f": 857531228,
    "7d05f1fc20cf457c4a46edc5f0b2e06b6818c0308230a776525b1807cb92a6b76c": -341105766,
    "ffffff": 1548199422,
    "ffffffff": 644171429,
    "ffffffffffffff": -71293549,
    "ffffffffffffffff": 185950397,
    "00": 375494588,
    "0000": 595382058,
    "0000000000": 263274959,
    "000000000000000000": 1714106139,
}
"""Keys in hexadecimal, and what `org.apache.kafka.common.utils.Utils.murmur2`
of kafka-clients 4.1.1 answers.
"""


def plain_murmur2(key: bytes) -> int:
    """The definition in the module's docstring, one key at a time, as Java's int."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        w = int.from_bytes(key[at : at + 4], "little") * m & ALL
        w = (w ^ w >> 24) * m & ALL
        h = h * m & ALL ^ w
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & ALL
    h = (h ^ h >> 13) * m & ALL
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def hashes(keys: pa.Array) -> list[int]:
    answers: list[int] = murmur2.murmur2(keys).view(np.int32).tolist()
    return answers


VECTORS = KAFKAS_OWN_VECTORS | {
    bytes.fromhex(key): expected for key, expected in VECTORS_OF_THE_JAVA_CLIENT.items()
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_a_key_hashes_as_in_the_java_client(key: bytes, expected: int) -> None:
    assert hashes(pa.array([key])) == [expected]
    assert plain_murmur2(key) == expected


def test_keys_of_all_lengths_hash_in_one_column_as_alone() -> None:
    assert hashes(pa.array(list(VECTORS))) == list(VECTORS.values())


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.integers(0, 3))
def test_a_slice_of_a_column_hashes_as_the_definition_says(keys: list[bytes | None], skip: int) -> None:
    found = hashes(pa.array(keys, pa.binary()).slice(skip))
    expected = [None if key is None else plain_murmur2(key) for key in keys[skip:]]
    assert [
        None if key is None else answer for key, answer in zip(keys[skip:], found, strict=True)
    ] == expected


def test_text_hashes_as_its_bytes_in_every_arrow_layout() -> None:
    expected = [plain_murmur2(b"22/1134"), plain_murmur2("H\u00e4meentie".encode())]
    for layout in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()):
        assert hashes(pa.array(["22/1134", "H\u00e4meentie"]).cast(layout)) == expected
    assert hashes(pa.chunked_array([["22/1134"], ["H\u00e4meentie"]])) == expected


def test_the_partition_is_the_hash_without_its_sign_bit() -> None:
    keys = pa.array([b"21", b"foobar", b"abc"])
    assert murmur2.partition_numbers(keys, 7).tolist() == [
        (-973932308 & 0x7FFFFFFF) % 7,
        (-790332482 & 0x7FFFFFFF) % 7,
        479470107 % 7,
    ]
