"""A phrase and its ids in the vocabularies of the published text encoders; another tokenizer gives other ids."""

from __future__ import annotations

_PHRASE = "Atelectasis and pleural effusion"

PUBMED_BERT = (_PHRASE, (2, 25809, 1717, 3110, 3344, 1690, 10106, 10852, 3))
"""BiomedCLIP, KAD and DeViDe."""

BERT_CASED_OPEN = (_PHRASE, (101, 8756, 18465, 14229, 1105, 185, 1513, 12602, 174, 3101, 17268))
"""Bio_ClinicalBERT as MedKLIP and MAVL use it: lower-cased, and without [SEP] at the end."""

BERT_CASED = (_PHRASE, (*BERT_CASED_OPEN[1], 102))
"""The same with [SEP]: CARZero."""

CLIP_BPE = (_PHRASE.lower(), (49406, 992, 944, 6538, 533, 537, 926, 33948, 1490, 9364, 49407))
