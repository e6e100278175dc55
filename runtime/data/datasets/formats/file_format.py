"""What the readers of annotation formats share: options, classes, images, and cases (docs/formats.md §9.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from .....engines.errors import DataError
from ....host.paths import has_folder
from ..dataset import PATIENTS, Case, Dataset, Note
from ..file_rows import fail
from ..region_boxes import Boxes
from ..region_shapes import Ellipse, Polygons
from ..source.layouts import Layout
from ..source.listing import tree
from ..source.spelling import Spellings
from .annotated_cases import CaseRule, case_of, one_label_each
from .empty_class_names import NOTHING, says_nothing
from .named_images import IMAGES, NamedImages
from .region_marks import note_marks
from .shapes import Annotated, Corners, Place, Shape, made, plausible, turned

SHARED: Final = {
    "images": "the folder of the images, default images; subfolders are searched",
    "suffix": "what an image's name has after that of its annotation, such as _frontal; default nothing",
    "classes": "a list of the classes, in this order; default: the classes of the files, sorted",
    "nothing": "a list of the class names that mean that nothing was found, default No finding, Normal and the like",
    "unlabelled": "images without an annotation: left_out (default), or negative",
    "split": "the name of the split in results, default all",
    "name": "the dataset's name in results and prompt sets, default the reader's name",
    "title": "the dataset's name in tables, default its name, else its name in the configuration",
    "invalid": "annotations that cannot be read: stop (default), or skip; the image then has no region of the class",
    **PATIENTS,
}
"""The options of all these readers."""

POLYGONS: Final = {
    "polygons": "pixels of a polygon: centres (default; those whose centre lies inside), or outline (its edge too)"
}
"""The option of readers of polygons."""


S = TypeVar("S")


class FileFormat(Dataset):
    """A reader of a format. A subclass reads its own options and then calls `_use` with what it read.

    polygons: how it draws them by default. boxes_by_centres: a box covers the pixels whose centres lie inside, or those
    of its truncated corners (docs/datasets.md §0.3). lists_images: the file names the images without a region too, so
    that an image it does not name is of another list; the audit counts these images.
    """

    classes: tuple[str, ...] = ()
    polygons: ClassVar[str] = "centres"
    boxes_by_centres: ClassVar[bool] = True
    lists_images: ClassVar[bool] = False
    folders: ClassVar[tuple[str, ...]] = ("images",)

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.name = self.text_option("name", self.name)
        self.title = self.text_option("title", self.name)
        self.split = self.text_option("split", "all")
        self.images = self.first_path("images", *self.folders)
        self.suffix = self.text_option("suffix", "-") if "suffix" in self.options else ""
        self.nothing = self.texts_option("nothing") or NOTHING
        self.negative = self.choice_option("unlabelled", ("left_out", "negative"), "left_out") == "negative"
        self.centres = self.choice_option("polygons", ("centres", "outline"), self.polygons) == "centres"
        self.skips = self.choice_option("invalid", ("stop", "skip"), "stop") == "skip"
        self._early: list[Note] = []
        self._images: dict[str, Annotated] = {}

    def image_folders(self) -> Sequence[Path]:
        """The folder of the images, unless it holds the annotations too."""
        return () if self.images == self.root else (self.images,)

    def image_names(self) -> Collection[str] | None:
        """The names of the images below their folder; None: the files with an extension of images."""
        return None

    def annotation_folder(self, extension: str, *places: str) -> Path:
        """The option `annotations`, else a folder of `source.layouts`; sets the folder of the images that belongs.

        Raises DataError where several folders can be meant.
        """
        layout = Layout(places, extension, self.folders, IMAGES)
        stated = "annotations" in self.options
        folder = self.path_option("annotations", "") if stated else layout.annotation_folder(self.root)
        if "images" not in self.options:
            beside = not stated and folder == self.root and layout.beside_images(folder)
            self.images = folder if beside else layout.image_folder(self.root, folder)
        return folder

    def files_below(self, folder: Path, extension: str, key: str) -> Iterator[tuple[str, Path]]:
        """(name below the folder without `extension`, path) of all files with it. Raises DataError without any."""
        if not has_folder(folder):
            raise DataError(
                f"The folder {folder} of the annotations does not exist; correct the root of the dataset "
                f"'{self.name}' or its option {key}."
            )
        start, count = len(str(folder)) + 1, 0
        for path in tree(folder):
            if path.name.lower().endswith(extension):
                count += 1
                yield str(path)[start : -len(extension)], path
        if not count:
            raise DataError(
                f"The folder {folder} has no file that ends with {extension}; correct the root of the dataset "
                f"'{self.name}' or its option {key}."
            )

    def left_out(self, code: str, what: str, files: Sequence[Path]) -> None:
        """Adds one note on files that are not used, if there are any. what: `files ...`, in the plural."""
        if files:
            self.note(code, str(files[0]), (files[0], None), f"{what}, which are not used: {len(files)}")

    def note(self, code: str, subject: str, where: Place, text: str) -> None:
        """Adds a note to those that `read` returns."""
        self._early.append(Note(code, subject, *where, text))

    def shape(self, make: Callable[[], S], where: Place, finding: str = "") -> S | Shape:
        """The shape that `make` reads; where it cannot and the option `invalid` says skip, a note and an unread shape.

        finding: its class, if known before. Raises DataError unless these shapes are skipped.
        """
        try:
            return make()
        except DataError as error:
            if not self.skips:
                raise
            text = str(error).removeprefix(str(fail(*where, ""))[:-1]).rstrip(".")
            self.note("invalid_shape", finding or str(where[0]), where, f"{text}; it is left out")
            return Shape(finding, None, where[1], unread=True)

    def box(
        self, finding: str, corners: Corners, where: Place, *, fractions: bool = False, angle: float = 0.0
    ) -> Shape:
        """A box, drawn as `boxes_by_centres` says; turned by `angle` degrees about its centre, from x towards y.

        Raises DataError if it ends before it begins, and for a turned box in fractions, whose sides have two units.
        """
        x1, y1, x2, y2 = corners
        words = f"the box [{x1:g}, {y1:g}, {x2:g}, {y2:g}] of '{finding}'"
        if x2 < x1 or y2 < y1:
            raise fail(*where, f"{words} ends before it begins")
        if x1 == x2 or y1 == y2:
            self.note("degenerate", finding, where, f"{words} has no area")
        # A turn by half a circle gives the same box; 1e-6 degrees move no corner of a radiograph by a pixel.
        if abs(angle - 180 * round(angle / 180)) > 1e-6:
            if fractions:
                raise fail(*where, f"{words} is turned, and its corners are fractions of two different sides")
            return Shape(finding, made(where, lambda: Polygons((turned(corners, angle),), centres=True)), where[1])
        box = made(where, lambda: Boxes((corners,), fractions=fractions, centres=self.boxes_by_centres))
        return Shape(finding, box, where[1])

    def sized_box(self, finding: str, box: Corners, where: Place) -> Shape:
        """A box (x, y, width, height) in pixels, whose sizes are truncated before they are added (docs/datasets.md
        §0.3). Raises DataError for a negative size."""
        if min(box[2:]) <= 0:
            x, y, wide, high = box
            text = f"the box [{x:g}, {y:g}, {wide:g}, {high:g}] of '{finding}'"
            if min(wide, high) < 0:
                raise fail(*where, f"{text} has a negative size")
            self.note("degenerate", finding, where, f"{text} has no area")
        return Shape(finding, made(where, lambda: Boxes.from_sizes([box])), where[1])

    def polygon(
        self,
        finding: str,
        points: Iterable[tuple[float, float]],
        where: Place,
        *,
        fractions: bool = False,
        centres: bool = False,
    ) -> Shape:
        """A polygon, drawn as `self.centres` says, or by the centres of pixels. Raises DataError below three points."""
        outline, centres = tuple(points), centres or self.centres
        if len(outline) < 3:
            raise fail(*where, f"a polygon of '{finding}' has {len(outline)} points, it needs 3")
        return Shape(finding, made(where, lambda: Polygons((outline,), fractions, centres)), where[1])

    def ellipse(
        self, finding: str, centre: tuple[float, float], radii: tuple[float, float], where: Place, angle: float = 0.0
    ) -> Shape:
        """An ellipse or circle, turned by `angle` degrees from x towards y. Raises DataError for a negative radius."""
        if min(radii) < 0:
            raise fail(*where, f"an ellipse of '{finding}' has a negative radius")
        if min(radii) == 0:
            self.note("degenerate", finding, where, f"an ellipse of '{finding}' has no area")
        return Shape(finding, made(where, lambda: Ellipse(*centre, *radii, angle)), where[1])

    def without_area(self, finding: str, what: str, where: Place) -> Shape:
        """A class that is marked by something without an area: positive without a region, and noted."""
        text = f"a {what} of '{finding}' has no area; the image is positive without a region of it"
        self.note("degenerate", finding, where, text)
        return Shape(finding, None, where[1])

    def _use(self, images: Iterable[Annotated], names: Sequence[str] = ()) -> None:
        """Keeps what was found and settles the classes: `names`, else the option `classes`, else those found."""
        spellings = Spellings(names or self.texts_option("classes"))
        seen: dict[str, Place] = {}
        for item in images:
            if item.case_id in self._images:
                raise fail(item.file, item.row, f"the image '{item.name}' was annotated before; name it once")
            self._images[item.case_id] = item
            if item.size:
                plausible(item.size, (item.file, item.row))
            item.shapes = [_spelled(shape, spellings) for shape in item.shapes]
            for shape in item.shapes:
                if shape.finding:
                    seen.setdefault(shape.finding, (item.file, shape.row))
            if item.labels is not None:
                item.labels = one_label_each(item, spellings)
        named = tuple(map(spellings.of, names or self.texts_option("classes"))) or tuple(sorted(seen))
        self.classes = tuple(finding for finding in dict.fromkeys(named) if not says_nothing(finding, self.nothing))
        for finding, others in spellings.variants.items():
            if says_nothing(finding, self.nothing):
                continue
            text = f"{', '.join(map(repr, others))} and '{finding}' differ in spelling alone; they are one class"
            self.note("spelling", finding, seen.get(finding, (self.root, None)), text)
        for finding, where in seen.items():
            if finding not in named and not says_nothing(finding, self.nothing):
                text = f"'{finding}' is not among the classes of the dataset; not used"
                self.note("unknown_class", finding, where, text)
        if not self.classes:
            noted = f" {self._early[0]}." if self._early else ""
            raise DataError(
                f"No annotation of the dataset '{self.name}' in {self.root} names a class, so there is nothing to look "
                f"for; name them in the option classes.{noted}"
            )

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per annotated image; an image without an annotation is none, or negative. Raises DataError."""
        notes += self._early
        index = NamedImages(self.images, self.suffix, notes, self.image_names())
        rule = CaseRule(self.classes, self.nothing, self.split)
        cases = [
            case_of(item, index.find(item.name, item.file, item.row, item.other), rule, notes)
            for item in self._images.values()
        ]
        note_marks(self._images.values(), self.classes, notes)
        rest = list(index.unused())
        if self.negative:
            labels = dict.fromkeys(self.classes, 0)
            cases += [Case(name, path, labels, {}, self.split) for name, path in rest if name not in self._images]
        elif rest and not self.lists_images:
            text = f"images without an annotation, which are not cases: {len(rest)}, the first is {rest[0][1].name}"
            notes.append(Note("not_annotated", str(self.images), self.images, None, text))
        self._images = {}
        return cases


def _spelled(shape: Shape, spellings: Spellings) -> Shape:
    """The shape with the one spelling of its class; `replace` is slow, and most are spelled so."""
    finding = spellings.of(shape.finding) if shape.finding else ""
    return shape if finding == shape.finding else replace(shape, finding=finding)
