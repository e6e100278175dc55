"""Small models with the configuration files of published CLIP models, for docs/recipes/published-clips.md.

Each has the keys and kinds of values of the published files, and the published image size, patch size, normalisation,
resize and tokenizer; widths, depths and vocabularies are smaller. The comments name the page or program that shows the
file; all were read on 2026-11-28.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
HALF = [0.5, 0.5, 0.5]
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 1, "num_hidden_layers": 1}
"""In place of the published widths and depths, which some files leave to the class."""
SPEECH = (
    "a chest x-ray showing a mass",
    "pleural effusion is indicated in this chest X-ray image.",
    "pneumonia nodule",
)


def squashed(size: int, mean: list[float], std: list[float], class_name: str, **more: Any) -> dict[str, Any]:
    """preprocessor_config.json of a model that squashes pictures."""
    common = {"do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": mean, "image_std": std}
    sizes = {"resample": 3, "rescale_factor": 0.00392156862745098, "size": {"height": size, "width": size}}
    return {**common, **sizes, "image_processor_type": class_name, **more}


# huggingface.co/fokan/MedSigLIP (a copy by the authors of google/medsiglip-448) shows preprocessor_config.json;
# fokan/MedFusion-AI/lite/encoder/config.json is the configuration as a newer transformers saved it again.
_GELU = {"attention_dropout": 0.0, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-06}
MEDSIGLIP = {
    "architectures": ["SiglipModel"],
    "dtype": "float32",
    "initializer_factor": 1.0,
    "model_type": "siglip",
    "text_config": {
        **_GELU, **SMALL, "max_position_embeddings": 64, "model_type": "siglip_text_model", "projection_size": 32,
        "vocab_size": 32000,
    },
    "transformers_version": "4.57.1",
    "vision_config": {
        **_GELU, **SMALL, "image_size": 448, "model_type": "siglip_vision_model", "num_channels": 3, "patch_size": 14,
    },
}  # fmt: skip
MEDSIGLIP_PICTURES = squashed(
    448, HALF, HALF, "SiglipImageProcessor", processor_class="SiglipProcessor", rescale_factor=0.00392156862
)

# huggingface.co/StanfordAIMI/XrayCLIP__vit-b-16__laion2b-s34b-b88k shows config.json and tokenizer_config.json. Of
# preprocessor_config.json it shows the size, 420 bytes; a test of deepghs/imgutils lists the model among those with
# BLIP's processor, and a public table of encoders gives 512 pixels, no crop and CLIP's mean and std. The keys below are
# the only ones of that class with this size.
XRAYCLIP = {
    "architectures": ["CLIPModel"],
    "initializer_factor": 1.0,
    "logit_scale_init_value": 2.6592,
    "model_type": "clip",
    "projection_dim": 24,
    "text_config": {**SMALL, "hidden_act": "gelu", "max_position_embeddings": 256, "model_type": "clip_text_model"},
    "torch_dtype": "float32",
    "transformers_version": "4.35.2",
    "vision_config": {
        **SMALL, "hidden_act": "gelu", "image_size": 512, "model_type": "clip_vision_model", "patch_size": 16,
    },
}  # fmt: skip
XRAYCLIP_PICTURES = squashed(512, CLIP_MEAN, CLIP_STD, "BlipImageProcessor", do_center_crop=False, do_convert_rgb=True)

# huggingface.co/StanfordAIMI/XrayCLIP__vit-l-16-siglip-384__webli, the same form with another loss, shows
# preprocessor_config.json. Its config.json is not shown: the keys are those of google/siglip-large-patch16-384, from
# which the training began.
XRAYSIGLIP = {
    "architectures": ["SiglipModel"],
    "initializer_factor": 1.0,
    "model_type": "siglip",
    "text_config": {**SMALL, "model_type": "siglip_text_model"},
    "torch_dtype": "float32",
    "transformers_version": "4.37.0.dev0",
    "vision_config": {**SMALL, "image_size": 512, "model_type": "siglip_vision_model"},
}
XRAYSIGLIP_PICTURES = squashed(512, HALF, HALF, "SiglipImageProcessor", processor_class="SiglipProcessor")

# flaviagiammarino/pubmed-clip-vit-base-patch32: its card names the architecture; a public table of encoders gives 224
# pixels, a centre crop, CLIP's mean and std. config.json has the keys of other models that were tuned from
# openai/clip-vit-base-patch32 (vinluvie/clip-finetuned); preprocessor_config.json those of facebook/metaclip-b32-400m,
# saved by the same class.
PUBMEDCLIP = {
    "_name_or_path": "openai/clip-vit-base-patch32",
    "architectures": ["CLIPModel"],
    "initializer_factor": 1.0,
    "logit_scale_init_value": 2.6592,
    "model_type": "clip",
    "projection_dim": 24,
    "text_config": {**SMALL, "bos_token_id": 0, "dropout": 0.0, "eos_token_id": 2, "model_type": "clip_text_model"},
    "torch_dtype": "float32",
    "transformers_version": "4.30.2",
    "vision_config": {**SMALL, "dropout": 0.0, "model_type": "clip_vision_model"},
}
PUBMEDCLIP_PICTURES = {
    **squashed(224, CLIP_MEAN, CLIP_STD, "CLIPImageProcessor", processor_class="CLIPProcessor"),
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "size": {"shortest_edge": 224},
}

# The file biomedclipcxr_518.json of microsoft/llava-rad, whole, in pradyunramesh/LLaVA-Rad.
BIOMEDCLIP_CXR = {
    "embed_dim": 512,
    "vision_cfg": {
        "timm_model_name": "vit_base_patch14_dinov2.lvd142m",
        "timm_model_pretrained": False,
        "timm_pool": "",
        "timm_proj": "linear",
        "image_size": 518,
    },
    "text_cfg": {
        "hf_model_name": "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract",
        "hf_tokenizer_name": "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract",
        "hf_proj_type": "mlp",
        "hf_pooler_type": "cls_last_hidden_state_pooler",
        "context_length": 256,
    },
}
# The keys of config.json and tokenizer_config.json of BERT's repositories on the Hub.
BIOMEDBERT = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "model_type": "bert", "pad_token_id": 0, "type_vocab_size": 2, **SMALL,
}  # fmt: skip

# StanfordAIMI/XrayCLIP__vit-b-16__laion2b-s34b-b88k, whole.
_MARK = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False, "special": True}
CLIP_WORDS = {
    "add_prefix_space": False,
    "added_tokens_decoder": {
        "49406": {"content": "<|startoftext|>", **_MARK},
        "49407": {"content": "<|endoftext|>", **_MARK},
    },
    "bos_token": "<|startoftext|>", "clean_up_tokenization_spaces": True, "do_lower_case": True,
    "eos_token": "<|endoftext|>", "errors": "replace", "model_max_length": 77, "pad_token": "<|endoftext|>",
    "tokenizer_class": "CLIPTokenizer", "unk_token": "<|endoftext|>",
}  # fmt: skip
# The file of 711 bytes that SigLIP models have, e.g. Kaspar/siglip-heritage-weaver-text; XrayCLIP__vit-b-16-siglip-512
# lists the same size.
_PIECE = {"lstrip": True, "normalized": False, "rstrip": True, "single_word": False, "special": True}
SIGLIP_WORDS = {
    "added_tokens_decoder": {"1": {"content": "</s>", **_PIECE}, "2": {"content": "<unk>", **_PIECE}},
    "additional_special_tokens": [], "clean_up_tokenization_spaces": True, "do_lower_case": True, "eos_token": "</s>",
    "model_input_names": ["input_ids"], "model_max_length": 64, "pad_token": "</s>",
    "processor_class": "SiglipProcessor", "sp_model_kwargs": {}, "tokenizer_class": "SiglipTokenizer",
    "unk_token": "<unk>",
}  # fmt: skip
BERT_WORDS = {
    "clean_up_tokenization_spaces": False, "cls_token": "[CLS]", "do_lower_case": True, "mask_token": "[MASK]",
    "model_max_length": 1000000000000000019884624838656, "pad_token": "[PAD]", "sep_token": "[SEP]",
    "strip_accents": None, "tokenize_chinese_chars": True, "tokenizer_class": "BertTokenizer", "unk_token": "[UNK]",
}  # fmt: skip


def clip_words(folder: Path) -> None:
    """CLIP's own vocabulary in the files of transformers, from the copy in open_clip."""
    import open_clip.tokenizer

    with gzip.open(open_clip.tokenizer.default_bpe(), "rt", encoding="utf-8") as stream:
        merges = stream.read().split("\n")[1 : 49152 - 256 - 2 + 1]
    letters = list(open_clip.tokenizer.bytes_to_unicode().values())
    pairs = ["".join(merge.split()) for merge in merges]
    words = [*letters, *(f"{letter}</w>" for letter in letters), *pairs, "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    _json(folder / "tokenizer_config.json", CLIP_WORDS)


def siglip_words(folder: Path) -> None:
    """A SentencePiece model of few pieces with SigLIP's special ones."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SPEECH * 20), model_prefix=str(folder / "spiece"), vocab_size=60, minloglevel=2,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    (folder / "spiece.vocab").unlink()
    _json(folder / "tokenizer_config.json", SIGLIP_WORDS)


def biomedbert(folder: Path) -> Path:
    """BERT's configuration and tokenizer, with a vocabulary of the prompts' letters and a few words."""
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,-;:!?()_'\"/"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "effusion", "mass", "chest", "ray", *letters]
    pieces = [*words, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    _json(folder / "tokenizer_config.json", BERT_WORDS)
    _json(folder / "config.json", {**BIOMEDBERT, "vocab_size": len(pieces)})
    return folder


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """The same initial weights whatever ran before: `varied` leaves biases and class tokens as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        yield


def saved(folder: Path, config: dict[str, Any], pictures: dict[str, Any], words: Callable[[Path], None]) -> Any:
    """The files of a repository of transformers, and the model of its weights."""
    import transformers

    folder.mkdir()
    _json(folder / "config.json", config)
    _json(folder / "preprocessor_config.json", pictures)
    words(folder)
    built = getattr(transformers, config["architectures"][0])
    read = transformers.AutoConfig.from_pretrained(str(folder))
    with seeded():
        model = built._from_config(read, attn_implementation="eager")
    return varied(model).eval()


def varied(model: Any) -> Any:
    """The model with weights much larger than at the start of a training: pictures and texts make a difference."""
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1:
                weights.copy_(torch.randn(weights.shape, generator=random) * 2 * weights[0].numel() ** -0.5)
            elif name.endswith("gamma"):
                weights.fill_(0.5)  # of timm's layer scale, whose 1e-5 would leave the class token alone
            elif name.endswith("logit_bias"):
                weights.fill_(-2.5)
            elif name.endswith("logit_scale"):
                weights.fill_(2.0)
    return model


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2))


def trained(config: dict[str, Any], bert: Path) -> tuple[Any, dict[str, Any]]:
    """The model of open_clip that `config` describes, with the text tower of the folder `bert`, and its tensors."""
    from open_clip.model import CustomTextCLIP

    text = {**config["text_cfg"], "hf_model_name": str(bert), "hf_model_pretrained": False}
    with seeded():
        model = CustomTextCLIP(**{**config, "text_cfg": text})
    model = varied(model).eval()
    return model, dict(model.state_dict())


def save_training(tensors: dict[str, Any], path: Path) -> None:
    """The file that open_clip's training writes on several GPUs."""
    state = {f"module.{name}": tensor for name, tensor in tensors.items()}
    torch.save({"epoch": 32, "name": "run", "state_dict": state, "optimizer": {"state": {}}}, path)


REPOSITORIES = {
    "medsiglip": ("medsiglip-448", MEDSIGLIP, MEDSIGLIP_PICTURES, siglip_words),
    "xrayclip": ("xrayclip", XRAYCLIP, XRAYCLIP_PICTURES, clip_words),
    "xraysiglip": ("xraysiglip", XRAYSIGLIP, XRAYSIGLIP_PICTURES, siglip_words),
    "pubmedclip": ("pubmedclip", PUBMEDCLIP, PUBMEDCLIP_PICTURES, clip_words),
}
"""Model -> folder of a repository of transformers, its two configurations, and what writes its tokenizer."""
