"""The hashes of code that earlier versions wrote into keys, where today's numbers mean the same values.

Keys once held hashes of the syntax trees of the deciding code. A run or a cache with one of the hashes below is kept;
one with another hash was computed by code whose values differed, or may differ, and is computed again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

FORMER: Final[Mapping[str, tuple[str, ...]]] = {
    # Since the version that keeps white white after lossy coding and refuses PNG files without their last rows. Later
    # changes of this code are names, errors, and the scoring of stored counts, which rows do not hold.
    "cpu-1": (
        "782ac0970b58455dda9acf8b99debe89baf7be341b15f4380d583117e98c27f9",
        "b13c0259fa0097d63760ded8103b26940f9473c6eddbefa0b90974e738eda011",
        "1f948a698fc6efc47a0ea2395be98a034aada8ada5cd01524fa7589da690aca3",
        "f42a5660f95bc85ada6e99971ae407a6d5f24a078f7a51d15de1b320d6c03713",
        "185696cd7a7b3c283ac8d8f04fe756b88ed43029494277faef29713d74de5a66",
        "152d7241aad4864f9136eb59076790e76a3615b95868e02435e8a985b597d902",
        "d2aca02e30eec9afa0d6d9b20a41df139905bb9858cab57a2cb4bf8f1dca58fc",
        "f754537fa81bc41f1ae4415794a084b50cf65744de57d82878b34b1352c1a53f",
    ),
    "gpu-1": (
        "411ca824edc956f08137735dd384e5d8edfcd9a0db00afe42eaff718c11193ed",
        "7ef643be43f6ac279891fccac7e346d337f85c299c750296d8c3c793815b1acd",
        "8713bc3426cf3391c7ee5b22f42818e1e66097e8ea858feca3e904bc913c934e",
        "1ae0a48828742353ef500dbeb91ebcd3af8d7cdc234c0cdfb2fe8d026653010c",
        "29a647f3c5989fe01e749dc489f365d663975c8b9d62e331bd17f405d4ebc15d",
        "6b1f82db038cf25e3637c4d5e03a329f5e08e1a595639e0adaae6c96ea6ee2f6",
        "e59ee096205929743b2a54682089c7de8b11b1c1af9ba63b312af5843cbc8536",
        "ec1f1c6af3775a591d8b42a24840b0d0fca9eac88ea9dc359f4b00614b9ca2b4",
    ),
    "live-1": (
        "74edc77f156308c8c9680ca9429d2ed93f5b5c22d1467347caa7a58942316bd4",
        "2623239032255b7805318faa906860d157ba96f334098b2976e4ecdbe41d5ecd",
        "efca0048aeff32e0d4c5cb058c46f038b82895ded9f5e79052faa4d7768de205",
        "4cd86975345cbb3e4038b842af4e8dd13192c92fdda4c572ea0318ac83fd789d",
        "fe9ede61b2eb6f6785fec9447dc8f229e985014d3ff521d8e5f6e3d918894a09",
        "21ca64810eeeaac44920e63b425a8f5957020cd565579b1c753d4b2d76579893",
        "2ec62e768a0d47dc52651231156fd428dac9e8a7c5417da12f7416d2455331f5",
        "333d5b021b53735f4982dacfe915ce3b4e57fd544c0abce1a47a49e8abd2a7b8",
    ),
    "baseline-1": (
        "7768a0081b433a3b1b0da22a068f381b168d23f0e1f7bb086eb5ab21b78c507d",
        "c9c391d170ce3d6928d706e6cee29bfa7075b630b5aa07cdb796fcd4d1124375",
        "96e89465e8d50b1312517f2195923de8e13b89810d99f6f3380a77a14c0f3d2f",
        "8ea6d528474761bbc7aa7e3851a00ec0c2fcbd38c5dd5f3f759f34010f68dc07",
        "571615a8daa8a53b95b949c8ef33ac3227afe711a18ade2508c70751c615b0d4",
        "12b0df54b81c17bfd173cf0bbd63fcdf1f86ae3093f7225a9bc217b004aac819",
        "3566a45de30f86a63c4060080076bf2d51158390687568387f96a3366b3cdc86",
        "4e64338a9713f41e249ad73d2e44d1d34ca02215f7c9b6ce15abbc3d16dba7f2",
    ),
    "maps-1": (
        "2b54d6c2d88d7690fd2996688d412fe3acc8faebd88ce3910899ee7b091b01fa",
        "63be9b188624df2316b383f6e3d06f133b90de4add7f74b8e8a92349fcfcba3a",
        "1e356414da43d2c693b15e453fd3685b11703006f5187028fb157f8f3eb82f77",
        "663028df2bf69e5685e2f4b057c7f8e6de66287bb85d4d502b1b96c9ae2127a8",
        "6b2328836f46f56d84dbef1967a4b561431e32caf30615f38ea898176fa42832",
        "c5d643ecc847175add6fe9bcfcd053d2bcc62b8823baca125cb50a8eb85eb481",
        "02bf4c0548f015800fc632e72c0f7c96c090046b9b1bdcab258191b5d72532c7",
        "0ce24edc257feda5de4ede33ac9756d703244910cac87e984ae2a69eb3426ee6",
    ),
    # Only the last hash: each version before it read some answers of language models differently.
    "boxes-1": ("3b59e9a12718f26ef75404a9348e0f47b81ba83571d61b7c8718ab0a95a6a53f",),
    # Since the same version. Later the crop of transformers' models became a mode of its own; the pixels of the other
    # modes stayed.
    "pixels-1": (
        "dbb0a9e18f72dddf",
        "d03b84fa2d27ef68",
        "89f9df12857fd624",
        "9f319bb16efd54fd",
    ),
    "dali-1": (
        "2c1c16bc9a8b44f2",
        "48980c4a22270849",
        "6fa16c1ccff86288",
        "84e4ac3e43ebf554",
    ),
    # Since the same version. Later boxes got the mark of a crowd, which does not change what is drawn.
    "masks-1": (
        "masks-aafad6b08ceedfe2",
        "masks-f5c1f9ae7251e222",
    ),
    # Readers whose files mark no crowds, since the same version: later changes are names and errors. Other labels,
    # patients or files would also change the hash of the dataset.
    "reading-1+reader chestxdet10-1": (
        "6f2c309fe6be7541a97092bd8b934d2c461d7c02960dcca18fa9964c2d30b4af",
        "23ba98893a1d88cea7ca309ce340ddf567360ebea8c36e13cb1018e788883cd1",
        "7a21de5e690636210919b94610d63c1ad56e1f90d90dc1a3d818fde031e6ec12",
        "8ec0c56869ad89d8bb5ab3db950c3ca195caea3b4981383c01f88ebb2d5c8d27",
    ),
    "reading-1+reader chestxray14-1": (
        "5f7c759ee8086bf242f104deacc023ccfaf22dfffa28d1e71ab1f13f4015ac4c",
        "6fa1a5f5af68d626f8ba6377903dcd3d933e81ea26529341370ffe79c72b3720",
        "b63af02de124c13d778c0d8eea0285554fb44256341f4956fec51be608ba3373",
        "d54a8b9836000184e172586e02f10224508e6737995fcbfbb35c4ec4f7b3daf1",
    ),
    "reading-1+reader chexlocalize-1": (
        "6681420261489444af923fe82a4dd8872b76c4855e75033cc292281db0f561dc",
        "4df1b3fed0e480f2f85c848601dc6d4eb7df9bbb088c4c58ce21a8c1f96571bc",
        "7c24dbf5040d2971c6f79b1bef1a61ed8e2d8b2f58d56b15e534763d099aa09b",
        "204066cd490972847b1ebdb476caa147b73355621dfb80f840a06e7214351bbd",
    ),
    "reading-1+reader covid_rural-1": (
        "bc62c90c7dd7ebf4b89f27664f7616ca0d9a5e149895a4d2ea70c83e2dcacba7",
        "1c48007458f1668265d217c5e23d1bbfa8af46791d6e77ad5c1a49778065c44b",
        "94e88750e751415d9d9703ce187fdae96205c9715ceab23d114e2eed934a9c63",
        "ba3f21c5d54920edb819a8ce37685162c175f5bcd95dfc66a46b82d36694e9c0",
        "f340e3d1f2ee1f349d697cdc1f7f8770648f27e20abc8c2901306f84e37bf596",
    ),
    "reading-1+reader mscxr-1": (
        "00f365880e57b65379868665556eaa899a2e8e725b73b717a0b1ee7756794e5f",
        "2fd6f2a91ff824655638fc403f46fa4b9d71e80ee5e6b6f7362e1a1404cca2e4",
        "380084cacd8872ed1eca165d59d31964759482a5c3098ce651d02d7f7a4c0648",
        "4efd2c51723a4cac8c24025f55b03a480407178d895b7b11c03b6c62c00be8cd",
    ),
    "reading-1+reader padchest_gr-1": (
        "941b846ee1e995615788554a70c6ae3fc9ab10e366bbef47206b4c78d8c72856",
        "8c5ac604d626e8d81b47f89348fd6751f4751d9434918741aab579c952f4e72c",
        "2e98d696f99dea2bcd3f30159b3938d01c11c927c99d1be84c7d9469b63d67d2",
        "7f5faf000efe1e6a513f9e37ea62eb420aefa3e92d2a73b5ef5242c520f05163",
    ),
    "reading-1+reader rsna-1": (
        "ebc0dfa910bab23435c9aedd3adb1e409d27d63297dc4e80cfdb792474b30a09",
        "a45ad4f55b3226b2111894813a0af743ce769df3bf51df225c68ea0b748ca6ad",
        "7ece446cc2e2520a75a6acf4642a2bbb6cb3ddc06f618a0ea9b80042eff34c03",
        "6860fbaee6f5fe450665fa06466af9504194214a44a22202b776c48899650fb2",
    ),
    "reading-1+reader siim-1": (
        "89e367ab04c55a027b2336b92597b01b6319d457bbf0a4299d827b50cfecbdb7",
        "99d8c7e459d87ecc66737acd6682f2631e574c1452d48700bc8d2314928dcb3b",
        "56fff3e2b9dc4a2dcd001b4c1988c86c077d950eb8c945c2a31ddc92e5148be5",
        "d3bdfb624336a1b9c2c146ab1fffcc4bef65e5d8ed2f9b0187eac3e634d64c69",
        "01f5b243dc600e3a997321bc7f28f8442cc6ed00b61ac8eb6778260ae080b3b6",
    ),
    "reading-1+reader vindr-1": (
        "712a6889b972663776adbcb02d26a7417bceb499fd12076cc77b6966c547f286",
        "d09fb10a227fc7e4f7e64d9dbdb2beda2820930b43efc44ad59bf046ec86a29e",
        "ef77bfd270eb68eb5cedcdb75c0fc14378b5869de96cb13ea12c137175daca33",
        "3f1ee99da1b2f3a8122a755cf654edc73cc98d845d5f926b7228aaa00aa1665e",
    ),
    # Readers of formats, since the version that reads the mark of a crowd: rows of predicted boxes hold it.
    "reading-1+reader coco-1": (
        "6629e058c55845489a18cf43950d8a04de45bd1661a68fcbbee4459e9aa8fa25",
        "8aa25540b05a3f90cc44453d6743769aeb765a109acaf3e4b9191cb3246c1e55",
    ),
    "reading-1+reader csv-1": (
        "01e224331ea685c00df68dff6c5ebbd96a27db306f3c42578bfc90c965a30a50",
        "782f81298d916e27babd913383f83b1c050888887ef85e0d7f47386371b7c930",
    ),
    "reading-1+reader cvat-1": (
        "59eb5c965320d4b7213cbd2b53ea8c0fa072faac29332445f6d7f693ad2fa58d",
        "c8deacd08232a2d266a575b6637dfc73f6420ad88ca08eb148ff9a1b01b5ab2e",
    ),
    "reading-1+reader dicom-1": (
        "29ea5b8429889ec0f344fb40f416ab78227c74535dc517bca932c030f8f7688e",
        "99f729a2c26d13fb8d1e925cf39fb0db56bc0ac7687ab0d8c9dce2c3603ae724",
    ),
    "reading-1+reader labelme-1": (
        "06d64876478140a9483812e2cd2c02e16848d7e53ac3a37d73350f773a392aa0",
        "c86e5f3e3385862f0be7c6d68b93386dd72a9b67df54225e4a56e9135ce5ba2d",
    ),
    "reading-1+reader masks-1": (
        "bc9779e156b45ab987bba49b1a7e32ef786dd633c6ac3fdfe8ec3d2ffbba5205",
        "ab25046bed728d4eddbc9dfbcab7bab7c63695726c0681455983852dfbd80911",
    ),
    "reading-1+reader nifti-1": (
        "c2fc5eb65433c18bb2f3165469ed95d04c8f84fdcc24d825410bd152d9e5639b",
        "0ef66ae332f8692b98eb60baee642a3d9f8e07cd36c95488be764afdc73ca412",
    ),
    "reading-1+reader voc-1": (
        "28ef307f982a6044c1f74eaf4ff3dd92b9e453393ec2bda8eb8249f9a72b4168",
        "098488419c38732df8e82fa15abedced46941237e043134e6fd118df94b887c4",
    ),
    "reading-1+reader yolo-1": (
        "98f74e361ca3e720e8f11c980decab1cf53de4e9c38c96784fcf6b03e5b4c7df",
        "faa43927b530b3bbf9363a0327a889a9780aa6c3367f97db6f2b91d7725d95db",
    ),
    # Since the version that rounds shares of hits once. Earlier rows can differ in the last bits.
    "trust deletion-1": (
        "c1cb1cc2fc881496cf6f84db1f0d3640e3090da53196ef91cfde78fe674dea5b",
        "6ce59de3e64d1e6654ddf5a4ed5ce1a94c1a43e762dfe4af30166f0fe66aec33",
        "12eb69a1498e927bcced6a48078a184421d024270aafc565f841f1361c262af9",
    ),
    "trust prompts-1": (
        "33dc2f12519fe5b22ee5a88d3711e2750e03d8f8a610fe61e6174511f066d5cb",
        "48f0e14f88e44907152d4a418bac317206c2abc6542ce7d4d67a6c8798edfda1",
        "09c12ee88a342a59bfadea4386613e9407ce1a960559958e46fe114ea6cbfe3d",
    ),
    "trust randomisation-1": (
        "4024a38a27e9c5b0068537d9e800ebae3172ef625839bf70c2dea15d7b6ea993",
        "8678c120600193a8c7ad7817ae7ffda7789a6371d48688d851aa9601f80b3e44",
        "ebb600ce86fe01e1f998e129176f91b374b2930da018ae647a11193e33a41d48",
    ),
    "trust region-1": (
        "bedccdb56f7c0c665028efd9ffc86194f17330141fd7d68c6ce7f18cb35a567b",
        "dd7ff473e96c1dad10f353323bb804730f41b86a308d180b6a14c48b07ab7474",
        "0f2534f43d4899b3668b2b55f7a16e927e37c838294b87accc6a5fdae72db116",
    ),
    "trust repeat-1": (
        "25a7f332dece772bf188a698e3c95c82d14cb573a09d5a71d7e540814f84fd51",
        "fdd6009db208a92f8a92688960e58e0808d2e8427d17d5fd12932b5faece2fbe",
        "c126da360aa7c4af031263c5143d2b38da8eb7fc4466dfeb873116697c8dd9de",
    ),
    "trust stability-1": (
        "743f29a95ec84fd4afa06472d6918ffa5b54f44fdebd2c8257c8bd59086cd1e4",
        "7280027299addee395e54a02a432f1cb8c984d7ce2acc35b5d8e7b36d2fd9973",
        "4b44c8cbf3fcc9a3cc19b8b92bee6169561456258ebd956e04740b21ff9bd315",
    ),
}
"""What a key holds today -> what it held. An entry has no effect once its number is raised."""

_WRITTEN = re.compile(r"\b(?:masks-)?[0-9a-f]{16}(?:[0-9a-f]{48})?\b")


def renewed(text: str) -> str:
    """A part of a key with today's number in place of each hash that is known."""
    return _WRITTEN.sub(lambda match: _today().get(match[0], match[0]), text)


@cache
def _today() -> dict[str, str]:
    return {written: number for number, hashes in FORMER.items() for written in hashes}
