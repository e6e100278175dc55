"""COVID-19 Rural: opacity masks on radiographs of COVID-19-AR (docs/published-datasets.md §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ....engines.errors import DataError
from ...host.paths import has_folder
from .dataset import Case, Dataset, Note, OfficialCounts
from .masks.mask_names import first_name, listed_masks
from .masks.mask_reader import MaskReader
from .region_shapes import MaskRuns
from .source.csv_files import read_csv
from .source.image_index import ImageTree
from .source.image_names import ImageIds, inside

_FINDING = "COVID-19"
_SUFFIXES = (".jpg", ".jpeg", ".png")
# The 32 positives of the 45 are computed from the paper's percentages; the other counts were counted.
_LISTS = (OfficialCounts(45, 32), OfficialCounts(44), OfficialCounts(132))


class CovidRural(Dataset):
    """`<root>/jpgs/<name>.jpg` and `<root>/pngs_masks/<name>.png`, or both below `<root>/covid_rural_annot`.

    The label is 1 if and only if the mask has a pixel above 0; no mask file means no opacity. Every patient is
    COVID-positive, so a negative label means an image without visible opacity.
    """

    name = "covid_rural"
    title = "COVID-19 Rural"
    classes = (_FINDING,)
    card = """Source: images of the TCIA collection COVID-19-AR; opacity masks of Tang, Sun and Li, repository
haimingt/opacity_segmentation_covid_chest_X_ray, 221 images.
Access: TCIA is open (CC BY 4.0, from memory: check there); the annotation repository states no licence.
Cite: Desai et al., Scientific Data 2020 (images); Tang, Sun and Li, medRxiv 2020.10.19.20215483 (masks).
Split: none official. The paper's is MAVL's test list (45 images, 32 positive); reconstructed, strong: the printed
percentages are multiples of 1/32. With 13 negatives an AUC needs its interval. Use split=paper with your own copy."""
    option_help: ClassVar[Mapping[str, str]] = {
        "split": "all (default): every image of the folder; list or paper: images in `list`",
        "list": "a CSV with the column filepath, such as test.csv of MAVL",
        "images": "the folder of the JPG files, default jpgs",
        "masks": "the folder of the PNG masks, default pngs_masks",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.split, self.list = self.list_option()
        self.images = self.first_path("images", "jpgs", "covid_rural_annot/jpgs")
        self.masks = self.first_path("masks", "pngs_masks", "covid_rural_annot/pngs_masks")

    def sources(self) -> Sequence[Path]:
        """The mask files, and the list if one is given."""
        return [*([self.list] if self.list else []), *self._mask_files([]).values()]

    def image_folders(self) -> Sequence[Path]:
        """No folders: the images are found by listing their folder, and a list excludes most of them by design."""
        return ()

    def official(self) -> OfficialCounts | None:
        """The counts of the three lists of MAVL, or of all 221 images."""
        if self.list is None:
            return OfficialCounts(221)
        return next((counts for counts in _LISTS if counts.cases == len(self.cases())), _LISTS[0])

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per name, in the order of the list or else sorted. Raises DataError."""
        masks = self._mask_files(notes)
        tree = ImageTree([self.images], _SUFFIXES, notes)
        for name in sorted(masks.keys() - tree.stems()):
            if first_name(name) in masks:
                text = f"it seems to be a further mask of the image '{first_name(name)}'; not used, join the two files"
                notes.append(Note("unread_mask", name, masks.pop(name), None, text))
        everything: dict[str, int | None] = dict.fromkeys(sorted({*tree.stems(), *masks}))
        names = self._listed(self.list, notes) if self.list else everything
        reader = MaskReader()
        cases = [self._case(name, row, masks.get(name), tree, reader, notes) for name, row in names.items()]
        notes += reader.notes()
        return cases

    def _case(
        self, name: str, row: int | None, mask: Path | None, tree: ImageTree, reader: MaskReader, notes: list[Note]
    ) -> Case:
        regions, size = {}, None
        if mask is not None:
            drawn = reader.read(mask, _FINDING)
            size = (drawn.shape[0], drawn.shape[1])
            if drawn.any():
                regions[_FINDING] = MaskRuns.of(drawn)
            else:
                notes.append(Note("empty_mask", name, mask, None, "the mask has no pixel above 0; taken as negative"))
        return Case(
            case_id=name,
            image=tree.find(name, self.list or self.images, row),
            labels={_FINDING: int(bool(regions))},
            regions=regions,
            split=self.split,
            patient_id=name.partition("_")[0],
            rows=() if row is None else (row,),
            size=size,
        )

    def _mask_files(self, notes: list[Note]) -> dict[str, Path]:
        # A missing folder must not turn every image into a negative.
        if not has_folder(self.masks):
            raise DataError(
                f"The folder {self.masks} of the masks does not exist; correct the root or the option masks."
            )
        return listed_masks(self.masks, notes)

    def _listed(self, file: Path, notes: list[Note]) -> dict[str, int | None]:
        names: dict[str, int | None] = {}
        ids = ImageIds(file)
        for row, cells in read_csv(file, ("filepath",)):
            name = ids.of(cells["filepath"], row, "filepath")
            inside(self.images, name, file, row)
            if name in names:
                notes.append(Note("duplicate", name, file, row, f"'{name}' was listed before"))
            names.setdefault(name, row)
        return names
