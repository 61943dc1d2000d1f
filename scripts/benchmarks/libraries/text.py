"""Computations of libraries for text, documents, pictures and sound. Each answers alike wherever it runs."""

from __future__ import annotations

import functools
import io
from typing import Any

from benchmarks.libraries.registry import Answer, computes, error_of

WORDS = ["quick", "Brown", "fox", "lazy", "dogs", "über", "jumping", "the"]
TEXT = " ".join(WORDS[step * 3 % len(WORDS)] for step in range(200))


@computes("regex")
def regex() -> Answer:
    """Fuzzy matches, and a replacement by a function."""
    import regex

    return [
        regex.findall(r"(?:lazi|quack){e<=1}", TEXT)[:5],
        regex.sub(r"\p{Lu}\w*", lambda match: match[0].swapcase(), TEXT)[:60],
        regex.fullmatch(r"(?:(?P<word>\X+?)\s?)+", TEXT[:20]).captures("word"),
    ]


@computes("rapidfuzz")
def rapidfuzz() -> Answer:
    """The nearest words."""
    from rapidfuzz import fuzz, process

    return [process.extract("jumpin", WORDS, scorer=fuzz.ratio, limit=3)]


@computes("lxml")
def lxml() -> Answer:
    """XPath with a function in Python, a style sheet, an error."""
    from lxml import etree

    tree = etree.fromstring(f"<list>{''.join(f'<item>{word}</item>' for word in WORDS)}</list>")
    etree.FunctionNamespace("urn:trial")["shout"] = lambda _, nodes: nodes[0].text.upper()
    style = etree.XSLT(
        etree.XML(
            "<xsl:stylesheet version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'>"
            "<xsl:template match='/'><out><xsl:value-of select='count(//item)'/></out></xsl:template>"
            "</xsl:stylesheet>"
        )
    )
    refused = str(error_of(etree.XMLSyntaxError, etree.fromstring, "<a><b></a>"))
    return [tree.xpath("t:shout(//item[last()])", namespaces={"t": "urn:trial"}), str(style(tree)), refused]


@computes("PyYAML")
def yaml() -> Answer:
    """YAML there and back by libyaml."""
    import yaml

    value = {"words": WORDS, "nested": [{"a": 1.5, "b": None}, True]}
    text = yaml.dump(value, Dumper=yaml.CSafeDumper, allow_unicode=True)
    return [text, yaml.load(text, Loader=yaml.CSafeLoader) == value]


@computes("tokenizers")
def tokenizers() -> Answer:
    """A tokenizer trained and applied, on threads of its own."""
    encoding = _tokenizer().encode(TEXT)
    batch = _tokenizer().encode_batch([TEXT, TEXT[::-1]])
    return [encoding.ids[:40], [len(each.ids) for each in batch]]


@functools.cache
def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=100, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


@computes("sentencepiece")
def sentencepiece() -> Answer:
    """A model of pieces trained and applied."""
    ids = _pieces().encode(TEXT)
    return [ids[:40], _pieces().decode(ids) == TEXT, _pieces().get_piece_size()]


@functools.cache
def _pieces() -> Any:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT[start : start + 80] for start in range(0, 900, 60)]),
        model_writer=model,
        vocab_size=45,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@computes("tiktoken")
def tiktoken() -> Answer:
    """An encoding of its own, on threads of its own."""
    import tiktoken

    ranks = {bytes([i]): i for i in range(256)} | {b"qu": 256, b"ui": 257, b"qui": 258}
    encoding = tiktoken.Encoding(
        "trial", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<end>": 300}
    )
    ids = encoding.encode(TEXT)
    return [ids[:20], encoding.decode(ids) == TEXT, len(encoding.encode_batch([TEXT] * 4))]


@computes("spacy")
def spacy() -> Answer:
    """Tokens, matches and rules of a blank pipeline."""
    import spacy
    from spacy.matcher import Matcher

    language = spacy.blank("en")
    language.add_pipe("sentencizer")
    matcher = Matcher(language.vocab)
    matcher.add("FOX", [[{"LOWER": "brown"}, {"LOWER": "fox"}], [{"IS_TITLE": True}]])
    document = language(f"{TEXT[:100]}. Don't stop, Mr. Fox!")
    again = spacy.tokens.Doc(language.vocab).from_bytes(document.to_bytes())
    return [[token.text for token in document][:12], len(matcher(document)), len(list(again.sents))]


@computes("tree-sitter")
def tree_sitter() -> Answer:
    """The parser's own objects, without a grammar."""
    import tree_sitter

    point = tree_sitter.Point(1, 2)
    return [tuple(point), tree_sitter.LANGUAGE_VERSION, tree_sitter.Parser().language is None]


@computes("jinja2")
def jinja2() -> Answer:
    """A template."""
    import jinja2

    return [
        jinja2.Template("{% for w in words %}{{ loop.index }}:{{ w|e }} {% endfor %}").render(words=WORDS)
    ]


@computes("pymupdf")
def pymupdf() -> Answer:
    """A document written, read, searched and rendered."""
    import pymupdf

    document = pymupdf.open()
    for number in range(3):
        page = document.new_page(width=200, height=200)
        page.insert_text((20, 40), f"page {number} {WORDS[number]}")
        page.draw_circle((100, 100), 30 + number, fill=(1, 0, 0))
    read = pymupdf.open("pdf", document.tobytes())
    picture = read[1].get_pixmap(dpi=50)
    refused = str(error_of(pymupdf.FileDataError, pymupdf.open, "pdf", b"nothing"))
    return [
        [page.get_text().strip() for page in read],
        len(read[0].search_for("page")),
        sum(picture.samples),
        refused,
    ]


def _pdf() -> bytes:
    drawn = b"BT /F 24 Tf 20 100 Td (Hello PDF) Tj ET 1 0 0 rg 9 9 50 50 re f"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]  # fmt: skip
    numbered = b"".join(b"%d 0 obj\n%s\nendobj\n" % each for each in enumerate(objects, start=1))
    return b"%%PDF-1.4\n%strailer<</Root 1 0 R/Size 6>>" % numbered  # readers find the objects themselves


@computes("pypdfium2")
def pypdfium2() -> Answer:
    """A page rendered, and its text."""
    import pypdfium2

    document = pypdfium2.PdfDocument(_pdf())
    page = document[0]
    text = page.get_textpage()
    picture = page.render(scale=0.5).to_numpy()
    answer = [len(document), text.get_text_range(), picture.shape, int(picture.sum())]
    text.close()
    page.close()
    document.close()
    refused = error_of(pypdfium2.PdfiumError, pypdfium2.PdfDocument, b"nothing")
    return [*answer, str(refused)[:40]]


@computes("pillow")
def pillow() -> Answer:
    """Drawn, filtered, and in three formats."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    picture = Image.new("RGB", (96, 64), (20, 40, 200))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((10, 5, 80, 50), fill=(255, 70, 0))
    draw.text((5, 40), "text", font=ImageFont.load_default(), fill="white")
    answers: Answer = [sum(picture.filter(ImageFilter.GaussianBlur(2)).tobytes())]
    for kind in ("PNG", "JPEG", "WEBP"):
        file = io.BytesIO()
        picture.save(file, kind)
        file.seek(0)
        answers.append([len(file.getvalue()), sum(Image.open(file).convert("L").histogram()[:128])])
    return answers


@computes("opencv-python-headless")
def cv2() -> Answer:
    """Filters, contours, PNG, on threads of its own."""
    import cv2
    import numpy as np

    picture = np.random.default_rng(3).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    gray = cv2.cvtColor(cv2.GaussianBlur(picture, (5, 5), 1.5), cv2.COLOR_BGR2GRAY)
    _, png = cv2.imencode(".png", picture)
    shapes, _ = cv2.findContours((gray > 128).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    refused = error_of(cv2.error, cv2.cvtColor, gray, 99999).func
    return [
        int(cv2.Canny(gray, 50, 150).sum()),
        bool((cv2.imdecode(png, 1) == picture).all()),
        len(shapes),
        refused,
    ]


@computes("matplotlib")
def matplotlib() -> Answer:
    """Figures drawn, by pyplot and without."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

    sizes = []
    for figure in (Figure((3, 2)), plt.figure(figsize=(3, 2))):
        axes = figure.subplots()
        axes.plot([1, 4, 9, 16], label="squares")
        axes.set_title(r"$\alpha^2$")
        axes.legend()
        file = io.BytesIO()
        figure.savefig(file, format="rgba")
        sizes.append(sum(file.getvalue()))
    plt.close("all")
    return sizes


@computes("av")
def av() -> Answer:
    """Frames encoded and decoded by FFmpeg."""
    import av
    import numpy as np

    file = io.BytesIO()
    with av.open(file, "w", format="avi") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuvj420p"
        for number in range(8):
            picture = np.full((48, 64, 3), number * 20, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as container:
        frames = [int(frame.to_ndarray(format="gray").mean()) for frame in container.decode(video=0)]
    refused = error_of(av.error.InvalidDataError, av.open, io.BytesIO(b"nothing" * 100))
    return [frames, type(refused).__name__]


@computes("soundfile")
def soundfile() -> Answer:
    """Sound in three formats, through a Python file."""
    import numpy as np
    import soundfile

    wave = np.sin(np.arange(8000) / 10)
    answers: Answer = []
    for kind in ("WAV", "FLAC", "OGG"):
        file = io.BytesIO()
        soundfile.write(file, wave, 8000, format=kind)
        file.seek(0)
        read, rate = soundfile.read(file)
        answers.append([len(read), rate, bool(abs(read - wave).max() < 0.1)])
    return answers


@computes("imagecodecs")
def imagecodecs() -> Answer:
    """PNG and JPEG 2000 there and back."""
    import imagecodecs
    import numpy as np

    picture = (np.add.outer(np.arange(40), np.arange(40)) % 251).astype(np.uint8)
    png = imagecodecs.png_decode(imagecodecs.png_encode(picture))
    jpeg = imagecodecs.jpeg2k_decode(imagecodecs.jpeg2k_encode(picture, reversible=True))
    return [bool((png == picture).all()), bool((jpeg == picture).all())]


@computes("transformers")
def transformers() -> Answer:
    """A forward pass of a small BERT."""
    import torch

    with torch.no_grad():
        pooled = _bert()(input_ids=(torch.arange(1, 9) * 5 % 50)[None]).pooler_output
    return [[round(value, 3) for value in pooled[0].tolist()]]


@functools.cache
def _bert() -> Any:
    import torch
    from transformers import BertConfig, BertModel

    model = BertModel(
        BertConfig(
            vocab_size=50, num_hidden_layers=2, num_attention_heads=2, hidden_size=16, intermediate_size=32
        )
    )
    for i, weights in enumerate(model.state_dict().values()):
        if weights.is_floating_point():
            weights.copy_(torch.sin(torch.arange(weights.numel()) * (0.37 + i)).view_as(weights))
    return model.eval()


@computes("safetensors")
def safetensors() -> Answer:
    """Tensors there and back."""
    import torch
    from safetensors.torch import load, save

    data = save({"weights": torch.arange(12.0).reshape(3, 4)}, metadata={"a": "b"})
    return [len(data), load(data)["weights"].tolist()]
