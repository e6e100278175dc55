"""Where the authors publish the checkpoints of the built-in models; read by `xbench-export --list`, without torch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PUBLISHED", "Published"]


@dataclass(frozen=True)
class Published:
    """Facts of one model: its variants as named by --variant, the file each comes in, and under what terms."""

    title: str
    variants: dict[str, str]
    where: str
    licence: str
    text: str


PUBLISHED = {
    "biomedclip": Published(
        title="BiomedCLIP (Zhang et al. 2023; Microsoft)",
        variants={"vit-b-16": "open_clip_pytorch_model.bin, or the same tensors as safetensors"},
        where="microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224 on Hugging Face",
        licence="MIT",
        text="vocabulary in the same repository, --tokenizer DIR or the local cache",
    ),
    "carzero": Published(
        title="CARZero (Lai et al. 2024; github.com/laihaoran/CARZero)",
        variants={"vit-b-16": "CARZero_best_model.ckpt"},
        where="Google Drive, file id 1kYF-k5otW5DHwz1En5d_ScV3zu2E27Ch (README of github.com/laihaoran/CARZero)",
        licence="Apache-2.0 (the repository's)",
        text="vocabulary of Laihaoran/BioClinicalMPBERT on Hugging Face, --tokenizer DIR or the local cache",
    ),
    "clip": Published(
        title="CLIP (OpenAI, ViT-B/32 and ViT-B/16)",
        variants={
            "vit-b-32": "ViT-B-32.pt, or open_clip_model.safetensors of timm/vit_base_patch32_clip_224.openai, or "
            "model.safetensors of openai/clip-vit-base-patch32",
            "vit-b-16": "ViT-B-16.pt, or open_clip_model.safetensors of timm/vit_base_patch16_clip_224.openai, or "
            "model.safetensors of openai/clip-vit-base-patch16",
        },
        where="openaipublic.azureedge.net/clip/models/<sha256>/<file>, and the Hugging Face repositories named",
        licence="stated in the openai/CLIP repository; read it before use",
        text="tokenizer bundled with open_clip_torch",
    ),
    "devide": Published(
        title="DeViDe (Luo et al. 2024, arXiv 2404.03618): an assumed architecture",
        variants={"assumed-architecture": "a file of the authors, with a config that says which tensor is which"},
        where="not published; ask the authors",
        licence="unknown",
        text="vocabulary of xmcmic/Med-KEBERT on Hugging Face (assumed), --tokenizer DIR or the local cache",
    ),
    "kad": Published(
        title="KAD (Zhang et al. 2023; github.com/xiaoman-zhang/KAD)",
        variants={
            "224": "KAD_Models/KAD_224/best_valid.pt",
            "512": "KAD_Models/KAD_512/best_valid.pt",
            "1024": "KAD_Models/KAD_1024/best_valid.pt (same tensors as KAD-512: give --resolution 1024)",
        },
        where="the Google Drive folder and Baidu Pan share named in the README of github.com/xiaoman-zhang/KAD",
        licence="MIT (the repository's)",
        text="vocabulary of xmcmic/Med-KEBERT on Hugging Face, --tokenizer DIR or the local cache",
    ),
    "mavl": Published(
        title="MAVL (Phan et al. 2024; github.com/HieuPhan33/CVPR2024_MAVL)",
        variants={"224": "checkpoint_full_40.pth (for grounding), or checkpoint_full_46.pth (for classification)"},
        where="the Google Drive folder named in Pretrain/data_file/DATA_Prepare.md of the repository",
        licence="none stated",
        text="weights and vocabulary of emilyalsentzer/Bio_ClinicalBERT on Hugging Face, which the file does not hold",
    ),
    "medklip": Published(
        title="MedKLIP (Wu et al. 2023; github.com/MediaBrain-SJTU/MedKLIP)",
        variants={"224": "checkpoint_final.pth"},
        where="the Google Drive folder and Baidu Pan share named in checkpoints/README.md of the repository",
        licence="none stated",
        text="weights and vocabulary of emilyalsentzer/Bio_ClinicalBERT on Hugging Face, which the file does not hold",
    ),
}
"""Model name -> facts (KAD and CLIP parity specifications)."""
