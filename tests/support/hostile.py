"""Requests that take as much memory as they can, of many kinds, and clients that send them mixed."""

import http.client
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

MIB = 1 << 20

GRIN = "\N{GRINNING FACE}"

TEXTS = {
    "/embed": "texts",
    "/": "inputs",
    "/v1/embeddings": "input",
    "/add": "texts",
    "/search": "text",
}
"""Routes that take texts, and the field's name."""

Asked = tuple[str, bytes | None, dict[str, str]]
"""Path, body and headers."""


def bodies_of_texts() -> Iterator[str]:
    """Yield values of JSON that are large, many, deep, wide by a letter beyond ASCII, or long to compute.

    Most are of a size of which several fit into the memory for requests, or nothing else would get in.
    """
    yield f'"{"word " * (MIB // 4)}"'
    yield f'["{"a" * MIB}{GRIN}"]'
    yield f'"{f"{GRIN} " * (MIB // 8)}"'
    yield f'"{" " * MIB}\\ud83d\\ude00"'
    yield "[" + '"a",' * 2047 + '"a"]'
    yield f"{'[' * 200_000}1{']' * 200_000}"
    yield json.dumps(["weather " * 300] * 64)


def binary(inputs: dict[str, tuple[list[int], str, bytes]]) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of tensors in binary data."""
    tensors = [
        {"name": name, "shape": shape, "datatype": kind, "parameters": {"binary_data_size": len(data)}}
        for name, (shape, kind, data) in inputs.items()
    ]
    head = json.dumps({"inputs": tensors}).encode()
    data = b"".join(one for _, _, one in inputs.values())
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


def tokens(texts: int, each: int) -> tuple[bytes, dict[str, str]]:
    """Return a run of an embedding model in which every token is 1."""
    tensor = ([texts, each], "INT64", (1).to_bytes(8, "little") * texts * each)
    return binary(dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), tensor))


@cache
def kinds(embedder: str) -> list[Asked]:
    """Return one request of each kind."""
    found: list[Asked] = [
        (path, f'{{"{key}": {value}}}'.encode(), {})
        for (path, key), value in itertools.product(TEXTS.items(), bodies_of_texts())
    ]
    metadata = ("{}," * 50_000, f'{{"a": "{"b" * MIB}{GRIN}"}},', '{"a": [' + "1," * 100_000 + "1]},")
    found += [("/add", f'{{"texts": "a", "metadata": [{one[:-1]}]}}'.encode(), {}) for one in metadata]
    found += [("/delete", b'{"keys": [' + b'"a",' * 50_000 + b'"a"]}', {})]
    run, numbers = f"/v2/models/{embedder}/infer", ",".join(["1.5"] * 200_000)
    detector = "/v2/models/silero_vad/infer"
    found += [(run, *tokens(*size)) for size in ((100, 512), (32, 256), (1, 100_000))]
    found += [(detector, *binary({"input": ([1, 4 * MIB // 4], "FP32", bytes(4 * MIB))}))]
    tensor = '{"name": "input", "shape": [200000], "datatype": "FP32", "data": '
    found += [(detector, f'{{"inputs": [{tensor}[{numbers}]}}]}}'.encode(), {})]
    found += [(run, b'{"inputs": [' + b'{"name": "x"},' * 30_000 + b"{}]}", {}), (run, bytes(31 * MIB), {})]
    return [*found, ("/vad", bytes(8 * MIB), {}), ("/texts?limit=1000", None, {}), ("/metrics", None, {})]


def mixed(port: int, embedder: str, clients: int, times: int, seconds: int) -> Counter[int]:
    """Let clients send at least so many requests of all kinds, for so long, and count the answers by status.

    0 stands for a connection that ended before the answer.
    """
    until, number = time.monotonic() + seconds, itertools.count()
    asked = kinds(embedder)

    def client(_: int) -> Counter[int]:
        found = Counter[int]()
        while (at := next(number)) < times or time.monotonic() < until:
            found[status(port, *asked[at * 7 % len(asked)])] += 1  # no neighbours have a route in common
        return found

    with ThreadPoolExecutor(clients) as threads:
        return sum(threads.map(client, range(clients)), Counter[int]())


def status(port: int, path: str, body: bytes | None, headers: dict[str, str]) -> int:
    """Send a request and return the status of the answer, which is read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    method = "GET" if body is None else "POST"
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
    return answer.status
