"""UIDs follow from all that decides an object, and from nothing else (docs/dicom.md §2)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dicom_films
import pytest
from dicom_answers import ANSWERS, MODEL, TAU
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.engines.base import EngineInfo
from xbench_fast.runtime.host import code_numbers
from xbench_fast.runtime.reporting.dicom import identity
from xbench_fast.runtime.reporting.dicom.dicom_object import KINDS
from xbench_fast.runtime.reporting.dicom.film_header import FilmHeader
from xbench_fast.runtime.reporting.dicom.film_objects import ObjectOptions, film_objects
from xbench_fast.runtime.reporting.dicom.identity import ModelIdentity, ObjectIdentity, hashed_uid, is_hashed_uid

TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
MODELS = st.builds(ModelIdentity, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
IDENTITIES = st.builds(ObjectIdentity, MODELS, TEXTS, st.floats(0, 1, width=32))
KIND = st.sampled_from(["overlay", "mask", "report", "fractions", "map"])


def parts(made: ObjectIdentity, kind: str, finding: str) -> tuple[Any, ...]:
    model = made.model
    deciding = (model.digest, model.prompt_digest, model.precision, model.engine)
    return (kind, finding, made.film_uid, made.tau, *deciding)


@given(IDENTITIES, KIND, TEXTS, IDENTITIES, KIND, TEXTS)
def test_equal_parts_are_equal_uids_and_others_are_not(
    one: ObjectIdentity, kind: str, finding: str, two: ObjectIdentity, other_kind: str, other: str
) -> None:
    same = parts(one, kind, finding) == parts(two, other_kind, other)
    assert (one.uid(kind, finding) == two.uid(other_kind, other)) == same


@given(IDENTITIES, KIND, TEXTS, st.data())
def test_each_part_changes_the_uid(made: ObjectIdentity, kind: str, finding: str, data: st.DataObject) -> None:
    uid = made.uid(kind, finding)
    for name in ("digest", "prompt_digest", "precision", "engine"):
        value = data.draw(TEXTS.filter(lambda text, name=name: text != getattr(made.model, name)))
        assert replace(made, model=replace(made.model, **{name: value})).uid(kind, finding) != uid
    assert replace(made, film_uid=made.film_uid + "1").uid(kind, finding) != uid
    assert replace(made, tau=(made.tau + 0.25) % 1).uid(kind, finding) != uid
    assert replace(made, tau=0.51).uid(kind, finding) != replace(made, tau=0.5).uid(kind, finding)
    assert made.uid(kind, finding + "x") != uid and made.uid(kind + "x", finding) != uid
    assert replace(made, model=replace(made.model, name="printed otherwise")).uid(kind, finding) == uid


@given(st.lists(TEXTS, max_size=6))
def test_a_uid_is_a_uuid_of_version_8(texts: list[str]) -> None:
    import uuid

    uid = hashed_uid(*texts)
    assert uid.startswith("2.25.") and len(uid) <= 44
    number = uuid.UUID(int=int(uid[5:]))
    assert number.version == 8 and number.variant == uuid.RFC_4122 and str(number.int) == uid[5:]
    assert is_hashed_uid(uid)


@given(st.integers(0, 2**130), st.sampled_from(["", "2.25.", "1.2.25."]))
def test_a_uid_of_another_form_is_not_one_of_ours(number: int, root: str) -> None:
    import uuid

    made = uuid.UUID(int=number % 2**128)
    ours = root == "2.25." and number < 2**128 and made.version == 8 and made.variant == uuid.RFC_4122
    assert is_hashed_uid(f"{root}{number}") == ours
    other = uuid.uuid5(uuid.NAMESPACE_OID, str(number)).int
    assert not is_hashed_uid(f"2.25.{other}") and not is_hashed_uid(f"2.25.{number}.1")


def test_the_writer_and_the_rule_of_the_map_change_the_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ObjectIdentity(ModelIdentity("m", "a", "b", "fp32", "cpu"), "1.2.3", 0.5)
    uids = {made.uid("mask", "Mass")}
    for name, value in (("MAP_RULE", "another"), ("library_versions", lambda names: {"highdicom": "0"})):
        monkeypatch.setattr(identity, name, value)
        uids.add(made.uid("mask", "Mass"))
    monkeypatch.setattr(code_numbers, "NUMBERS", {"dicom": 77})
    uids.add(made.uid("mask", "Mass"))
    assert len(uids) == 4


def test_the_identity_is_taken_from_the_bundle_the_prompts_and_the_engine() -> None:
    from synthetic import prompt_set

    def identity_of(digest: str = "a", set_name: str = "one", precision: str = "fp32", engine: str = "cpu") -> str:
        manifest = SimpleNamespace(model="m", variant="v", weights="published", logit_scale=1.0)
        bundle: Any = SimpleNamespace(manifest=manifest, digest=digest)
        info = EngineInfo(engine, "the device", precision, "versions")
        model = ModelIdentity.of(bundle, replace(prompt_set(), name=set_name), info)
        return ObjectIdentity(model, "1.2.3", 0.5).uid("mask", "Mass")

    others = [identity_of("b"), identity_of(set_name="two"), identity_of(precision="int8"), identity_of(engine="gpu")]
    assert len({identity_of(), *others}) == 5 and identity_of() == identity_of()


def test_each_part_changes_the_uids_of_all_objects_of_a_film() -> None:
    pytest.importorskip("highdicom")

    def uids(model: ModelIdentity = MODEL, tau: float = TAU, uid: str = "1.2.3", finding: str = "Mass") -> set[str]:
        film = FilmHeader.read(dicom_films.film("sc", (40, 40), SOPInstanceUID=uid), "the film")
        made = film_objects(film, [replace(ANSWERS[0], finding=finding)], model, ObjectOptions(KINDS, tau))
        assert len(made) == len(KINDS)
        return {item.uid for item in made}

    changes = ("digest", "prompt_digest", "precision", "engine")
    each = [uids(), uids(tau=0.6), uids(uid="1.2.4"), uids(finding="Nodule")]
    each += [uids(replace(MODEL, **{name: "other"})) for name in changes]
    assert len(set().union(*each)) == len(each) * len(KINDS) and uids() == each[0]


def test_a_prompt_set_changes_its_digest() -> None:
    import numpy as np
    from synthetic import prompt_set
    from xbench_fast.runtime.reporting.dicom.identity import prompt_digest

    prompts = prompt_set()
    changed = [
        replace(prompts, name="other"),
        replace(prompts, texts=(*prompts.texts[:-1], "another text")),
        replace(prompts, polarity=-prompts.polarity),
        replace(prompts, features=np.nextafter(prompts.features, np.float32(9))),
        prompts.only(prompts.findings[0]),
    ]
    assert len({prompt_digest(item) for item in (prompts, *changed)}) == 1 + len(changed)
    assert prompt_digest(prompts) == prompt_digest(replace(prompts, status=tuple("x" for _ in prompts.status)))
