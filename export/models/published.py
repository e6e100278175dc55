"""Facts about the built-in models' published checkpoints; read by `xbench-export --list`, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...engines.manifest import MODEL_ORDER


@dataclass(frozen=True)
class Published:
    """Facts about one model: its variants as named by --variant, the file of each, and the licence terms.

    `files` are the paths below a folder of checkpoints where a variant is searched, best first, for CheXzero folders;
    `sha256` maps a file's name to its digest, if known: as the authors state it, or as Hugging Face shows it for the
    file in their repository.
    """

    title: str
    variants: dict[str, str]
    where: str
    licence: str
    text: str
    files: dict[str, tuple[str, ...]]
    sha256: dict[str, str] = field(default_factory=dict)
    small: tuple[str, ...] = ()

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """The variants of the stand-in, the default first."""
        return (*self.variants, *self.small)

    def find(self, folder: Path, variant: str) -> Path | None:
        """The checkpoint of `variant` in `folder`, under the name it was published with."""
        candidates = (folder / name for name in self.files.get(variant, ()))
        return next((path for path in candidates if path.exists()), None)


def _places(model: str, variant: str, *names: str) -> tuple[str, ...]:
    """Paths in the variant's own folder, in the model's, or, for names unique to this variant, in the folder itself."""
    generic = ("open_clip_model.safetensors", "model.safetensors")
    inside = [f"{folder}/{name}" for folder in (f"{model}-{variant}", f"{model}/{variant}") for name in names]
    plain = [name for name in names if name not in generic]
    return (*inside, *(f"{model}/{name}" for name in plain), *plain)


def _biovil_places(model: str, size: str, repository: str, file: str) -> tuple[str, ...]:
    """The image file in a folder of its own, since the text file beside it has a name that many models share."""
    return tuple(f"{folder}/{file}" for folder in (f"{model}-{size}", f"{model}/{size}", model, repository))


def _kad_places(size: str) -> tuple[str, ...]:
    """KAD's files share a name; the folder distinguishes them."""
    folders = (f"KAD_Models/KAD_{size}", f"KAD_{size}", f"kad-{size}", f"kad/{size}", f"kad/KAD_{size}")
    return tuple(f"{folder}/best_valid.pt" for folder in folders)


_DRIVE, _BAIDU = "Google Drive, folder id", "Baidu Pan, pan.baidu.com/s/"
_NO_LICENCE = "unknown: the repository has no licence file"
_BIOVIL_IMAGE = "biovil_image_resnet50_proj_size_128.pt"
_BIOVIL_T_IMAGE = "biovil_t_image_model_proj_size_128.pt"
_BIOVIL_TERMS = (
    "MIT (code; weights by their public pages); the README says that the models are not for deployed use, commercial "
    "or otherwise"
)
_CLINICAL_BERT = (
    "weights and vocabulary of emilyalsentzer/Bio_ClinicalBERT on Hugging Face (MIT), which the file does not hold; "
    "--text-encoder and --tokenizer DIR, or the local cache"
)
_MED_KEBERT = "vocabulary of xmcmic/Med-KEBERT on Hugging Face (OpenRAIL)"
_DIR = "--tokenizer DIR or the local cache"
_BIOVIL_TEXT = (
    "weights and vocabulary in the same repository, beside the image file, --text-encoder and --tokenizer DIR, or the "
    "local cache"
)


def _xrv_places(variant: str, datasets: str) -> tuple[str, ...]:
    """The file of torchxrayvision's release, which is named after what it was trained on."""
    return _places("xrv", variant, f"{datasets}-densenet121-d121-tw-lr001-rot45-tr15-sc15-seed0-best.pt")


_FACTS = {
    "afloc": Published(
        title="AFLoc (Yang et al. 2024; github.com/YH0517/AFLoc)",
        variants={"resnet-50": "a .ckpt file; the repository does not name it"},
        files={"resnet-50": _places("afloc", "resnet-50", "afloc.ckpt", "AFLoc.ckpt")},
        where=f"{_DRIVE} 1RQktI5NN-vd1-xVnt3DDPI9hl3eUxzpq (README of github.com/YH0517/AFLoc)",
        licence="Apache-2.0 (the repository's)",
        text=f"vocabulary of emilyalsentzer/Bio_ClinicalBERT on Hugging Face (MIT), {_DIR}",
    ),
    "biomedclip": Published(
        title="BiomedCLIP (Zhang et al. 2023; Microsoft)",
        variants={"vit-b-16": "open_clip_pytorch_model.bin, or the same tensors as safetensors"},
        files={
            "vit-b-16": _places("biomedclip", "vit-b-16", "open_clip_pytorch_model.bin", "open_clip_model.safetensors")
        },
        sha256={
            "open_clip_pytorch_model.bin": "52cc993c5c5ff962bd0c60931874bc001e7e9b41666a385530f4a036294576be",
        },
        where="microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224 on Hugging Face",
        licence="MIT; the model card is for research alone: any deployed use, commercial or otherwise, is out of scope",
        text=f"vocabulary in the same repository, {_DIR}",
    ),
    "biovil": Published(
        title="BioViL (Boecking et al. 2022; Microsoft)",
        variants={
            "480": f"{_BIOVIL_IMAGE} (md5 02ce6ee460f72efd599295f440dbb453) and pytorch_model.bin, in one folder"
        },
        files={"480": _biovil_places("biovil", "480", "BiomedVLP-CXR-BERT-specialized", _BIOVIL_IMAGE)},
        sha256={
            _BIOVIL_IMAGE: "118c4bb1c16d4e69b7c9b7f2ff5b2c0a79242059acf20bd2ed3068045b8f6b98",
            "pytorch_model.bin": "a41d2f4b33e5bdbacabecb8d34c4420163e2165b9fdc6915014e8263a0d0782b",
        },
        where="microsoft/BiomedVLP-CXR-BERT-specialized on Hugging Face, revision v1.1",
        licence=_BIOVIL_TERMS,
        text=_BIOVIL_TEXT,
    ),
    "biovil_t": Published(
        title="BioViL-T (Bannur et al. 2023; Microsoft)",
        variants={
            "448": f"{_BIOVIL_T_IMAGE} (md5 a83080e2f23aa584a4f2b24c39b1bb64) and pytorch_model.bin, in one folder"
        },
        files={"448": _biovil_places("biovil_t", "448", "BiomedVLP-BioViL-T", _BIOVIL_T_IMAGE)},
        sha256={
            _BIOVIL_T_IMAGE: "b2399d73dc2a68b9f3a1950e864ae0ecd24093fb07aa459d7e65807ebdc0fb77",
            "pytorch_model.bin": "6d86a8d760eaa09c9a55d57cc6f6bb01b0cbccb8b827fc775a79f37a8fbda76c",
        },
        where="microsoft/BiomedVLP-BioViL-T on Hugging Face, revision v1.0",
        licence=_BIOVIL_TERMS,
        text=_BIOVIL_TEXT,
    ),
    "carzero": Published(
        title="CARZero (Lai et al. 2024; github.com/laihaoran/CARZero)",
        variants={"vit-b-16": "CARZero_best_model.ckpt"},
        files={
            "vit-b-16": (
                "pretrain_model/CARZero_best_model.ckpt",
                *_places("carzero", "vit-b-16", "CARZero_best_model.ckpt"),
            )
        },
        where="Google Drive, file id 1kYF-k5otW5DHwz1En5d_ScV3zu2E27Ch (README of github.com/laihaoran/CARZero)",
        licence="Apache-2.0 (the repository's)",
        text=f"vocabulary of Laihaoran/BioClinicalMPBERT on Hugging Face (licence unknown), {_DIR}",
    ),
    "chexzero": Published(
        title="CheXzero (Tiu et al. 2022; github.com/rajpurkarlab/CheXzero)",
        variants={
            "vit-b-32": "the folder of all .pt files, whose average is the published model, or one of them, such as "
            "best_64_5e-05_original_22000_0.864.pt"
        },
        files={"vit-b-32": ("chexzero-vit-b-32", "chexzero/vit-b-32", "chexzero", "CheXzero_Models")},
        where=f"{_DRIVE} 1makFLiEMbSleYltaRxw81aBhEDMpVwno (README of github.com/rajpurkarlab/CheXzero)",
        licence="MIT (the repository's)",
        text="tokenizer bundled with open_clip_torch",
    ),
    "clip": Published(
        title="CLIP (OpenAI, ViT-B/32 and ViT-B/16)",
        variants={
            "vit-b-32": "ViT-B-32.pt, or open_clip_model.safetensors of timm/vit_base_patch32_clip_224.openai, or "
            "model.safetensors of openai/clip-vit-base-patch32",
            "vit-b-16": "ViT-B-16.pt, or open_clip_model.safetensors of timm/vit_base_patch16_clip_224.openai, or "
            "model.safetensors of openai/clip-vit-base-patch16",
        },
        files={
            "vit-b-32": _places("clip", "vit-b-32", "ViT-B-32.pt", "open_clip_model.safetensors", "model.safetensors"),
            "vit-b-16": _places("clip", "vit-b-16", "ViT-B-16.pt", "open_clip_model.safetensors", "model.safetensors"),
        },
        sha256={
            "ViT-B-32.pt": "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af",
            "ViT-B-16.pt": "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f",
        },
        where="openaipublic.azureedge.net/clip/models/<sha256>/<file>, and the Hugging Face repositories named; LAION "
        "and DataComp weights need another activation and do not belong here",
        licence="MIT (the repository openai/CLIP; timm's copies say Apache-2.0); "
        "its model card is for research: any deployed use, commercial or not, is out of scope",
        text="tokenizer bundled with open_clip_torch",
    ),
    "devide": Published(
        title="DeViDe (Luo et al. 2024, arXiv 2404.03618): an assumed architecture",
        variants={"assumed-architecture": "none published; a file in KAD's structure, the ViT-B/16 under timm's names"},
        files={
            "assumed-architecture": _places("devide", "assumed-architecture", "devide.pt", "devide.pth", "devide.ckpt")
        },
        where="not published; ask the authors",
        licence="unknown",
        text=f"{_MED_KEBERT}, assumed, {_DIR}",
    ),
    "kad": Published(
        title="KAD (Zhang et al. 2023; github.com/xiaoman-zhang/KAD)",
        variants={
            "224": "KAD_Models/KAD_224/best_valid.pt",
            "512": "KAD_Models/KAD_512/best_valid.pt",
            "1024": "KAD_Models/KAD_1024/best_valid.pt (same tensors as KAD-512: give --resolution 1024)",
        },
        files={size: _kad_places(size) for size in ("224", "512", "1024")},
        small=("demo",),
        where=f"{_DRIVE} 1xWVVJRfnm_wIgUpbn9ftsW4K5XKU0i0-, or {_BAIDU}1qFRuJNNmcL0pC1AtjFjbaw, code abrz (README of "
        "github.com/xiaoman-zhang/KAD)",
        licence="MIT (the repository's)",
        text=f"{_MED_KEBERT}, {_DIR}",
    ),
    "mavl": Published(
        title="MAVL (Phan et al. 2024; github.com/HieuPhan33/CVPR2024_MAVL)",
        variants={"224": "checkpoint_full_40.pth (for grounding), or checkpoint_full_46.pth (for classification)"},
        files={"224": _places("mavl", "224", "checkpoint_full_40.pth", "checkpoint_full_46.pth")},
        where=f"{_DRIVE} 1EN-oHVk513qmoehWypkrJ2Ero5PoUmId (Pretrain/data_file/DATA_Prepare.md of the repository)",
        licence=_NO_LICENCE,
        text=_CLINICAL_BERT,
    ),
    "medklip": Published(
        title="MedKLIP (Wu et al. 2023; github.com/MediaBrain-SJTU/MedKLIP)",
        variants={"224": "checkpoint_final.pth"},
        files={"224": _places("medklip", "224", "checkpoint_final.pth")},
        where=f"{_DRIVE} 1HBShH7J_pO8onkzuweDgDq2QPqj6zjG_, or {_BAIDU}1qea5jVtHcW81i-jI4IP7Cg?pwd=2vuc "
        "(checkpoints/README.md of the repository)",
        licence=_NO_LICENCE,
        text=_CLINICAL_BERT,
    ),
    "xrv": Published(
        title="DenseNet-121 of torchxrayvision (Cohen et al. 2022; github.com/mlmed/torchxrayvision), supervised",
        variants={
            "all": "nih-pc-chex-mimic_ch-google-openi-kaggle-densenet121-d121-tw-lr001-rot45-tr15-sc15-seed0-best.pt",
            **{
                name: f"{'kaggle' if name == 'rsna' else name}-densenet121-d121-(...)-best.pt"
                for name in ("nih", "pc", "chex", "mimic_nb", "mimic_ch", "rsna")
            },
        },
        files={
            "all": _xrv_places("all", "nih-pc-chex-mimic_ch-google-openi-kaggle"),
            **{name: _xrv_places(name, name) for name in ("nih", "pc", "chex", "mimic_nb", "mimic_ch")},
            "rsna": _xrv_places("rsna", "kaggle"),
        },
        where="github.com/mlmed/torchxrayvision/releases/tag/v1",
        licence="Apache-2.0 (the repository's, which says nothing else of the weights); the images behind them have "
        "terms of their own: CheXpert's (chex, all) allow non-commercial research alone, MIMIC-CXR's (mimic_nb, "
        "mimic_ch, all) are PhysioNet's for credentialed users",
        text="none: it answers for the findings it was trained on",
    ),
}

PUBLISHED = {name: _FACTS[name] for name in sorted(_FACTS, key=MODEL_ORDER.index)}
"""Model name -> facts (docs/parity.md §3), in the order of tables."""
