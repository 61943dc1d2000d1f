"""Runs in interpreters, and in the host to tell what is right: work for extension modules, by seed.

Each function is called as the library that it is about. What it gives is the same
for the same seed, wherever it runs, and takes compiled code of that library to find.
"""

from __future__ import annotations

import functools
import io
import os
import time
import warnings
from pathlib import Path
from typing import Any

from interpool.native.inside import interpreter_id

Answer = list[Any]

WORDS = ["quick", "Brown", "fox", "lazy", "dogs", "über", "jumping", "the"]


def text_of(seed: int, words: int = 11) -> str:
    return " ".join(WORDS[(seed * step) % len(WORDS)] for step in range(1, words + 1))


def numpy(seed: int) -> Answer:
    import numpy as np

    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((24, 24))
    symmetric = matrix @ matrix.T + np.eye(24)
    order = np.argsort(matrix, axis=None)
    return [
        np.linalg.inv(symmetric).round(9).tolist(),
        np.linalg.eigvalsh(symmetric).round(9).tolist(),
        np.fft.fft(matrix[0]).real.round(9).tolist(),
        order[:10].tolist(),
        np.random.RandomState(seed).randint(0, 10**9, 5).tolist(),
        str(np.array(["text", "longer text"])[seed % 2]),
    ]


def scipy(seed: int) -> Answer:
    import numpy as np
    from scipy import linalg, optimize, sparse, special

    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((16, 16))
    symmetric = matrix @ matrix.T + np.eye(16)
    grid = sparse.random(40, 40, density=0.1, format="csr", rng=chance)
    # The callback goes through C and back into this interpreter's Python.
    found = optimize.root(lambda x: x**3 - seed - 1, 1.0).x
    return [
        linalg.cho_solve(linalg.cho_factor(symmetric), matrix[0]).round(9).tolist(),
        linalg.expm(matrix / 10).round(9).tolist(),
        (grid @ grid.T).sum(axis=0).round(9).tolist(),
        special.jv(2, np.arange(5.0) + seed).round(9).tolist(),
        found.round(6).tolist(),
    ]


def pandas(seed: int) -> Answer:
    import numpy as np
    import pandas as pd

    chance = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "key": chance.choice(["a", "b", "c"], 60),
            "value": chance.standard_normal(60),
            "when": pd.date_range("2024-01-01", periods=60, freq="7h", tz="Europe/Berlin"),
        }
    )
    read = pd.read_csv(io.StringIO(frame.to_csv(index=False)), parse_dates=["when"])
    joined = frame.merge(frame.groupby("key", as_index=False)["value"].mean(), on="key")
    daily = frame.set_index("when")["value"].resample("1D").sum()
    return [
        joined["value_y"].round(9).tolist(),
        daily.round(9).tolist(),
        [str(day) for day in daily.index],
        frame["value"].rolling(5).median().dropna().round(9).tolist(),
        frame["key"].str.upper().value_counts().sort_index().to_dict(),
        read["value"].sum().round(9).item(),
    ]


def sklearn(seed: int) -> Answer:
    from sklearn.cluster import KMeans
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    points, classes = make_classification(80, 6, random_state=seed)
    forest = RandomForestClassifier(4, random_state=seed).fit(points, classes)
    return [
        LogisticRegression().fit(points, classes).predict_proba(points[:5]).round(5).tolist(),
        forest.predict_proba(points[:5]).round(9).tolist(),
        SVC().fit(points, classes).decision_function(points[:5]).round(5).tolist(),
        round(float(KMeans(3, n_init=2, random_state=seed).fit(points).inertia_), 5),
    ]


def PIL(seed: int) -> Answer:  # noqa: N802 (the library's name)
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    picture = Image.new("RGB", (96, 64), (seed % 256, 40, 200))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((10, 5, 80, 50), fill=(255, seed * 7 % 256, 0))
    draw.text((5, 40), text_of(seed, 2), font=ImageFont.load_default(), fill="white")
    answers: Answer = [picture.filter(ImageFilter.GaussianBlur(2)).resize((24, 16)).tobytes().hex()]
    for kind in ("PNG", "JPEG", "WEBP"):
        file = io.BytesIO()
        picture.save(file, kind)
        file.seek(0)
        answers.append([len(file.getvalue()), Image.open(file).convert("L").histogram()])
    return answers


@functools.cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(["The quick brown fox", "jumps over the lazy dog", "ÄÖÜ äöü"] * 3, trainer)
    return tokenizer


def tokenizers(seed: int) -> Answer:
    text = text_of(seed)
    encoding = _tokenizer().encode(text)
    batch = _tokenizer().encode_batch([text, text[::-1]])
    return [encoding.ids, encoding.tokens, [list(o) for o in encoding.offsets], [e.ids for e in batch]]


@functools.cache
def _pieces() -> Any:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text_of(seed) for seed in range(40)]),
        model_writer=model,
        vocab_size=60,
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentencepiece(seed: int) -> Answer:
    text = text_of(seed)
    ids = _pieces().encode(text)
    return [ids, _pieces().encode(text, out_type=str), _pieces().decode(ids), _pieces().get_piece_size()]


def safetensors(seed: int) -> Answer:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load, save

    tensors = {
        "weights": torch.arange(12.0).reshape(3, 4) * seed,
        "half": torch.full((5,), seed, dtype=torch.bfloat16),
    }
    data = save(tensors, metadata={"seed": str(seed)})
    read = load(data)
    try:
        load(data[: len(data) // 2])
    except SafetensorError as error:
        refused = str(error)
    return [len(data), read["weights"].tolist(), read["half"].tolist(), str(read["half"].dtype), refused]


@functools.cache
def _transformers() -> Any:
    import torch
    from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

    small = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 32}
    models = (
        BertModel(BertConfig(vocab_size=50, **small)),
        LlamaForCausalLM(LlamaConfig(vocab_size=50, num_key_value_heads=2, **small)),
    )
    for model in models:
        for i, weights in enumerate(model.state_dict().values()):
            if weights.is_floating_point():
                # Not by chance: the process has one generator for all.
                weights.copy_(torch.sin(torch.arange(weights.numel()) * (0.37 + i)).view_as(weights))
        model.eval()
    return models


def transformers(seed: int) -> Answer:
    import torch

    bert, llama = _transformers()
    ids = (torch.arange(1, 9) * (seed + 1) % 50)[None]
    with torch.no_grad():
        pooled = bert(input_ids=ids).pooler_output
        text = llama.generate(ids, max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
    return [[round(value, 4) for value in pooled[0].tolist()], text.tolist()]


def regex(seed: int) -> Answer:
    import regex

    text = text_of(seed)
    return [
        regex.findall(r"(?:lazi|quack){e<=1}", text),
        regex.sub(r"\p{Lu}\w*", lambda match: match[0].swapcase(), text),
        regex.split(r"(?V1)(?<=\p{L}{4})\s", text),
        regex.fullmatch(r"(?:(?P<word>\X+)\s?)+", text).captures("word"),
    ]


def yaml(seed: int) -> Answer:
    import yaml

    value = {"seed": seed, "words": text_of(seed).split(), "nested": [{"a": 1.5, "b": None}, True]}
    text = yaml.dump(value, Dumper=yaml.CSafeDumper, allow_unicode=True)
    try:
        yaml.load("a: [1, 2", Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        refused = str(error)
    return [text, yaml.load(text, Loader=yaml.CSafeLoader) == value, refused]


def psutil(seed: int) -> Answer:
    import psutil

    process = psutil.Process()
    try:
        psutil.Process(2**22 + seed)
    except psutil.NoSuchProcess as error:
        missing = str(error)
    return [
        process.pid == os.getpid(),
        process.cmdline(),
        process.memory_info().rss > 1 << 20,
        psutil.virtual_memory().total,
        psutil.cpu_count(),
        psutil.boot_time(),
        missing,
    ]


def lxml(seed: int) -> Answer:
    from lxml import etree

    items = "".join(f"<item n='{i}'>{word}</item>" for i, word in enumerate(text_of(seed).split()))
    tree = etree.fromstring(f"<list seed='{seed}'>{items}</list>")
    style = etree.XSLT(
        etree.XML(
            "<xsl:stylesheet version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'>"
            "<xsl:template match='/'><out><xsl:value-of select='count(//item)'/></out></xsl:template>"
            "</xsl:stylesheet>"
        )
    )
    # An XPath function in Python: through C and back into this interpreter.
    shout = etree.FunctionNamespace("urn:tests")
    shout["shout"] = lambda _context, nodes: nodes[0].text.upper()
    try:
        etree.fromstring("<a><b></a>")
    except etree.XMLSyntaxError as error:
        refused = str(error)
    return [
        tree.xpath("//item[@n mod 2 = 1]/text()"),
        tree.xpath("t:shout(//item[last()])", namespaces={"t": "urn:tests"}),
        str(style(tree)),
        etree.tostring(tree, pretty_print=True).decode(),
        refused,
    ]


def cv2(seed: int) -> Answer:
    import cv2
    import numpy as np

    picture = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    blurred = cv2.GaussianBlur(picture, (5, 5), 1.5)
    gray = cv2.cvtColor(blurred, cv2.COLOR_BGR2GRAY)
    _, png = cv2.imencode(".png", picture)
    shapes, _ = cv2.findContours((gray > 128).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    try:
        cv2.cvtColor(gray, 99999)
    except cv2.error as error:
        refused = error.func
    return [
        cv2.resize(picture, (16, 12), interpolation=cv2.INTER_AREA).tolist(),
        int(cv2.Canny(gray, 50, 150).sum()),
        bool((cv2.imdecode(png, cv2.IMREAD_COLOR) == picture).all()),
        sorted(len(shape) for shape in shapes),
        refused,
    ]


def pyarrow(seed: int) -> Answer:
    import pyarrow as pa
    from pyarrow import compute, csv, parquet

    table = pa.table({"key": text_of(seed, 30).split(), "value": [(seed * i) % 17 for i in range(30)]})
    grouped = table.group_by("key").aggregate([("value", "sum"), ("value", "max")]).sort_by("key")
    file = io.BytesIO()  # a Python file that C++ reads and writes
    parquet.write_table(table, file)
    file.seek(0)
    text = io.BytesIO()
    csv.write_csv(table, text)
    try:
        compute.add(table["key"], 1)
    except pa.ArrowNotImplementedError as error:
        refused = str(error)[:60]
    return [
        grouped.to_pylist(),
        parquet.read_table(file).equals(table),
        csv.read_csv(io.BytesIO(text.getvalue())).to_pydict() == table.to_pydict(),
        compute.utf8_upper(table["key"]).to_pylist(),
        table.to_pandas()["value"].cumsum().tolist(),
        refused,
    ]


LIBRARIES = [
    "numpy",
    "scipy",
    "pandas",
    "sklearn",
    "PIL",
    "tokenizers",
    "safetensors",
    "transformers",
    "regex",
    "yaml",
    "psutil",
    "lxml",
    "sentencepiece",
    "cv2",
    "pyarrow",
]


def answer(library: str, seed: int) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs are not what is tested
        return globals()[library](seed)  # type: ignore[no-any-return]


def overlapping(library: str, seeds: list[int], meeting: str, guests: int) -> list[Answer]:
    """The answers for ``seeds``, found while every other guest is busy with the same library.

    Goes through its seeds again until all ``guests`` have been through theirs once, which
    each tells the others by a file in the folder ``meeting``: none is done before all work.
    """
    answers = [answer(library, seed) for seed in seeds]
    (Path(meeting) / f"{library}-{interpreter_id()}").touch()
    deadline = time.monotonic() + 180
    while len(list(Path(meeting).glob(f"{library}-*"))) < guests:
        assert time.monotonic() < deadline, "the other guests did not come"
        assert [answer(library, seed) for seed in seeds] == answers
    return answers


def in_turn(libraries: list[str], seed: int) -> dict[str, Answer]:
    """An answer of each library, in the order given."""
    return {library: answer(library, seed) for library in libraries}
