"""The models that benchmarks pack: those of the store, and of installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.checkout import ROOT

STORE = ROOT / "model_store"


@dataclass(frozen=True)
class Model:
    """One model to pack.

    Attributes:
        name: in the table.
        what: it is, in a few words.
        root: its source.
        spec: its factory.
        needs: modules that must be importable, besides torch; without them the row says so.
        build: scripts to run first, below the root.
        by_hand: what else the user had to write, in words.
        paper: what the paper's Figure 4 calls the model of this kind; "" if it has none.
    """

    name: str
    what: str
    root: Path
    spec: str
    needs: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    by_hand: str = ""
    paper: str = ""

    @property
    def factory(self) -> Path:
        """The file that the SPEC names."""
        return self.root / f"{self.spec.partition(':')[0].replace('.', '/')}.py"


def _recipe(name: str, paper: str, what: str, *needs: str, build: tuple[str, ...] = ()) -> Model:
    return Model(name, what, STORE / name, "project.factory:build", needs, build, paper=paper)


def _wide(recipe: str, what: str) -> Model:
    return Model(f"{recipe}, wide", what, STORE / recipe, "project.wide:build")


def _zoo(name: str, what: str, *needs: str, by_hand: str = "") -> Model:
    return Model(name, what, STORE / "third_party", f"{name}:build", needs, by_hand=by_hand)


# The models of Figure 4 of "Using Python for Model Inference in Deep Learning" (DeVito et al., 2021,
# arXiv:2104.00254), each as a recipe of its kind.
RECIPES = (
    _recipe("bert", "BERT", "text classifier: Hugging Face BERT with its tokenizer", "transformers",
            "tokenizers"),
    _recipe("mobilenet", "MobileNetV3", "image classifier: MobileNetV3-Small", "PIL"),
    _recipe("dlrm", "DLRM", "recommendation: DLRM"),
    _recipe("translator", "Attention is all you need", "encoder-decoder that generates token by token"),
    _recipe("tacotron", "Tacotron 2", "speech: Tacotron 2"),
    _recipe("tagger", "Struct", "structured prediction: BiLSTM-CRF on torch-struct", "torch_struct"),
    _recipe("detector", "Mask R-CNN", "Faster R-CNN with region operators in C++", build=("build_ops.py",)),
    _recipe("slomo", "Super SloMo", "frames between frames: optical flow by two U-Nets"),
    _recipe("stargan", "StarGAN", "faces with other attributes: StarGAN"),
    _recipe("cyclegan", "CycleGAN", "images as another kind of images: CycleGAN"),
    _recipe("demucs", "Demucs", "sources of music: a U-Net on waveforms"),
    _recipe("yolo", "YOLOv3", "detector made from a Darknet description: YOLOv3"),
    _recipe("painter", "Learning to Paint", "agent that paints: actor and neural renderer"),
    _recipe("matting", "Background Matting", "people cut out: context switching network"),
    _recipe("moco", "MoCo", "views of the same image: MoCo with its queue"),
)  # fmt: skip

# Those that TorchScript takes, so wide that a call is nearly all arithmetic, as of the paper's big models.
WIDE = (
    _wide("demucs", "sources of music: 37 million weights, two seconds of sound"),
    _wide("matting", "people cut out: 3 million weights"),
)

THIRD_PARTY = (
    _zoo("efficientnet_b0", "efficientnet_pytorch: EfficientNet-B0", "efficientnet_pytorch"),
    _zoo("encodec_24khz", "encodec: audio codec", "encodec"),
    _zoo("geometric_gcn", "torch_geometric: graph convolutions", "torch_geometric"),
    _zoo("open_clip_small", "open_clip_torch: CLIP", "open_clip"),
    _zoo(
        "snac_codec",
        "snac: audio codec",
        "snac",
        by_hand="folds `torch.nn.utils.parametrizations` into plain weights: torch refuses to pickle them",
    ),
    _zoo("timm_vit", "timm: ViT-Tiny", "timm"),
    _zoo("torchvision_ssdlite", "torchvision: SSDlite detector", "torchvision"),
    _zoo("transformers_whisper", "transformers: Whisper", "transformers"),
    _zoo("vit_pytorch_vit", "vit-pytorch: ViT", "vit_pytorch"),
    _zoo("vocos_mel", "vocos: vocoder", "vocos"),
    _zoo("x_transformers_decoder", "x-transformers: decoder", "x_transformers"),
)
