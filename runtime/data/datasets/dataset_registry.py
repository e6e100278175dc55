"""The dataset readers by name: `DATASETS.load("rsna")` is the reader's class."""

from __future__ import annotations

from ....engines.registry import Registry

_HERE = "xbench_fast.runtime.data.datasets"

DATASETS = Registry(
    "dataset",
    {
        "chestxdet10": f"{_HERE}.chestxdet10:ChestXDet10",
        "chestxray14": f"{_HERE}.chestxray14:ChestXray14",
        "chexlocalize": f"{_HERE}.chexlocalize:CheXlocalize",
        "coco": f"{_HERE}.formats.coco:Coco",
        "covid_rural": f"{_HERE}.covid_rural:CovidRural",
        "csv": f"{_HERE}.formats.csv_boxes:CsvBoxes",
        "cvat": f"{_HERE}.formats.cvat:Cvat",
        "dicom": f"{_HERE}.formats.dicom.dicom_objects:DicomObjects",
        "labelme": f"{_HERE}.formats.labelme:LabelMe",
        "masks": f"{_HERE}.formats.mask_folder:PngMasks",
        "mscxr": f"{_HERE}.phrases.ms_cxr:MsCxr",
        "nifti": f"{_HERE}.formats.nifti:NiftiMasks",
        "padchest_gr": f"{_HERE}.phrases.padchest_gr:PadChestGr",
        "rsna": f"{_HERE}.rsna:Rsna",
        "siim": f"{_HERE}.siim:Siim",
        "vindr": f"{_HERE}.vindr:Vindr",
        "vindr_kaggle": f"{_HERE}.vindr:VindrKaggle",
        "voc": f"{_HERE}.formats.voc:PascalVoc",
        "yolo": f"{_HERE}.formats.yolo:Yolo",
    },
    group="xbench_fast.datasets",
)
