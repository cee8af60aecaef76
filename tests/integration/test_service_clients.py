"""Tests of the service with clients that others wrote for OpenAI, Text Embeddings Inference and KServe."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from huggingface_hub import InferenceClient
from ortpacks_service.options import EMBEDDER

from tests.support import ran
from tests.support.pypi_programs import pypi_program
from tests.support.service import Running, service, write_embedder

CLIENTS = ("langchain-openai==1.7.4", "openai==3.57.0")

KEY = "sk-one"

SCRIPT = """
import json, sys
import openai
from langchain_openai import OpenAIEmbeddings

TEXTS = ["east", "north"]
url, key, name = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
given = {"base_url": url + "/v1", "api_key": key, "model": name}
found = {
    "listed": [one.id for one in client.models.list()],
    "retrieved": client.models.retrieve(name).id,
    "options": client.embeddings.create(
        model=name, input="east", dimensions=2, user="u", encoding_format="float"
    ).data[0].embedding,
    "many": len(client.embeddings.create(model=name, input=["east"] * 2048).data),
    "langchain": OpenAIEmbeddings(check_embedding_ctx_length=False, **given).embed_documents(TEXTS),
}
for wrong, ask in {
    "tokens": lambda: client.embeddings.create(model=name, input=[[1, 2], [3]]),
    "dimensions": lambda: client.embeddings.create(model=name, input="east", dimensions=1),
    "model": lambda: client.models.retrieve("gpt"),
    "key": lambda: client.with_options(api_key="other").models.list(),
}.items():
    try:
        ask()
    except openai.APIStatusError as error:
        found[wrong] = [type(error).__name__, error.body["message"]]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("clients")
    write_embedder(folder / "models" / EMBEDDER)
    env = {"ORTPACKS_API_KEY": KEY, "ORTPACKS_ALIASES": "text-embedding-3-small"}
    with service(folder / "models", folder / "data", env) as started:
        yield started


@pytest.fixture(scope="module", params=[f"sentence-transformers/{EMBEDDER}", "text-embedding-3-small"])
def answers(running: Running, request: pytest.FixtureRequest) -> dict[str, Any]:
    python = pypi_program(CLIENTS, "bin/python")
    argv = [python, "-c", SCRIPT, f"http://127.0.0.1:{running.port}", KEY, request.param]
    done = ran(argv)
    assert done.returncode == 0, done.stderr
    return {"name": request.param, **json.loads(done.stdout)}


def test_openai_s_client_and_langchain_find_the_model_and_embed(answers: dict[str, Any]) -> None:
    assert {EMBEDDER, answers["name"]} <= set(answers["listed"])
    assert answers["retrieved"] == answers["name"]
    assert answers["options"] == [1, 0]
    assert answers["many"] == 2048
    assert answers["langchain"] == [[1, 0], [0, 1]]


def test_openai_s_client_is_told_what_is_wrong(answers: dict[str, Any]) -> None:
    kind, said = answers["tokens"]
    assert (kind, "check_embedding_ctx_length=False" in said) == ("BadRequestError", True)
    assert answers["dimensions"][0] == "BadRequestError"
    assert answers["model"][0] == "NotFoundError"
    assert answers["key"][0] == "AuthenticationError"


def test_hugging_face_s_client_embeds_as_with_text_embeddings_inference(running: Running) -> None:
    with InferenceClient(f"http://127.0.0.1:{running.port}", token=KEY) as client:
        assert client.feature_extraction("east north east").tolist() == [pytest.approx([0.8, 0.6])]
        long = "north " * 300
        taken = client.feature_extraction(long, truncate=True, truncation_direction="right", dimensions=2)
        assert taken.tolist() == [[0, 1]]
        for other in ({"truncation_direction": "left"}, {"dimensions": 1}, {"prompt_name": "query"}):
            with pytest.raises(OSError, match=f"Bad request.*\n.*{next(iter(other))}: "):
                client.feature_extraction(long, **other)
        with pytest.raises(OSError, match="413"):
            client.feature_extraction(long, truncate=False)


def test_triton_s_client_gives_a_key(running: Running) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{running.port}") as client:
        assert client.is_server_ready()
        tensor = triton.InferInput("input_ids", [1, 2], "INT64")
        tensor.set_data_from_numpy(np.array([[2, 3]]))
        with pytest.raises(triton.InferenceServerException, match="Authorization"):
            client.infer(EMBEDDER, [tensor])
        found = client.infer(EMBEDDER, [tensor], headers={"Authorization": f"Bearer {KEY}"})
        assert found.as_numpy("rows").tolist() == [[[2, 0], [0, 3]]]
