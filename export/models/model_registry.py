"""The registry of models.

Other packages add models through the entry point group `xbench_fast.models`; a target is an `Adapter` subclass.
"""

from __future__ import annotations

from ...engines.registry import Registry

MODELS = Registry(
    "model",
    {
        "afloc": "xbench_fast.export.models.afloc:AflocAdapter",
        "biomedclip": "xbench_fast.export.models.biomedclip:BiomedClipAdapter",
        "biovil": "xbench_fast.export.models.biovil:BioVilAdapter",
        "biovil_t": "xbench_fast.export.models.biovil:BioVilTAdapter",
        "carzero": "xbench_fast.export.models.carzero:CarzeroAdapter",
        "chexzero": "xbench_fast.export.models.chexzero:ChexzeroAdapter",
        "clip": "xbench_fast.export.models.clip:ClipAdapter",
        "devide": "xbench_fast.export.models.devide:DevideAdapter",
        "kad": "xbench_fast.export.models.kad:KadAdapter",
        "mavl": "xbench_fast.export.models.mavl:MavlAdapter",
        "medklip": "xbench_fast.export.models.medklip:MedKlipAdapter",
        "xrv": "xbench_fast.export.models.xrv:XrvAdapter",
    },
    group="xbench_fast.models",
)
