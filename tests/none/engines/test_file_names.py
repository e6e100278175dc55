"""Keys and file names of names: different ones for different names, unchanged where nothing is ambiguous."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.engines.file_names import joined, label_stems, plain_stem, unique_stem, unique_stems

# Short names over the signs that are easily taken for one another.
names = st.text("ab-_ .A/é\x00肺", max_size=5)


def test_unambiguous_names_keep_their_form() -> None:
    assert joined("kad-224", "rsna") == "kad-224--rsna"
    assert joined("kad", "rsna", "stability") == "kad--rsna--stability"
    assert plain_stem("baseline:center", "my data") == "baseline_center--my_data"
    assert unique_stem("chest_x-ray.14+") == "chest_x-ray.14+"
    assert unique_stems(["My Data", "rsna"]) == ["My_Data", "rsna"]
    assert label_stems(["dice-Mein Datensatz/Ö_2", "肺"]) == ["dice-mein-datensatz-o-2", "table"]


def test_only_names_with_a_separator_of_their_own_get_a_digest() -> None:
    for ambiguous in [("k", "x--y"), ("k--x", "y"), ("k-", "x"), ("k", "-x")]:
        key = joined(*ambiguous)
        assert key.startswith("--".join(ambiguous) + "-") and len(key) == len("--".join(ambiguous)) + 9


def test_short_names_have_keys_of_their_own() -> None:
    parts = ["".join(signs) for length in range(5) for signs in product("a-", repeat=length)]
    pairs = [*product(parts, parts)]
    assert len({joined(*pair) for pair in pairs}) == len(pairs)
    assert len({joined(*three) for three in product(parts[:15], repeat=3)}) == 15**3


@given(st.lists(names, unique=True, max_size=6))
def test_no_two_names_have_one_file_in_any_letter_case(found: list[str]) -> None:
    for stems in ([unique_stem(name) for name in found], unique_stems(found), label_stems(found)):
        assert len({stem.lower() for stem in stems}) == len(found)
        assert all(stem and not stem.startswith(".") and stem.isascii() and "/" not in stem for stem in stems)


def test_equal_names_and_imitated_digests_have_files_of_their_own() -> None:
    assert len(set(unique_stems(["a", "a", "b"]))) == 3
    first = unique_stems(["a b", "a_b"])
    assert len(set(unique_stems(["a b", "a_b", *first]))) == 4


def test_long_names_are_cut_and_stay_apart() -> None:
    long = ["n" * 300 + end for end in ("1", "2")]
    for stems in ([*map(unique_stem, long)], unique_stems(long), label_stems(long)):
        assert len(set(stems)) == 2 and max(map(len, stems)) < 200
    assert len(plain_stem(*long)) < 200
