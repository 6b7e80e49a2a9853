"""Hints in error messages."""

from emu.errors import did_you_mean


def test_a_near_miss_is_answered_with_the_word_meant():
    assert did_you_mean("gama", ["gamma", "seed"]) == "Did you mean 'gamma'?"


def test_a_word_unlike_all_others_is_answered_with_the_whole_list_however_long():
    known = [f"map{number}" for number in range(60)]
    hint = did_you_mean("xyz", known)
    assert all(name in hint for name in known)
