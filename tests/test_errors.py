"""Hints in error messages, and how other people's exceptions are told."""

import json
import os

import pytest

from emu.errors import described, did_you_mean, printable


def test_a_near_miss_is_answered_with_the_word_meant():
    assert did_you_mean("gama", ["gamma", "seed"]) == "Did you mean 'gamma'?"


def test_a_word_unlike_all_others_is_answered_with_the_whole_list_however_long():
    known = [f"map{number}" for number in range(60)]
    hint = did_you_mean("xyz", known)
    assert all(name in hint for name in known)


def lost():
    raise RuntimeError("the ball is lost")


def test_an_exception_is_described_with_the_line_of_the_users_own_code():
    with pytest.raises(RuntimeError) as caught:
        lost()
    line = lost.__code__.co_firstlineno + 1
    assert described(caught.value) == f"RuntimeError: the ball is lost ({shown_path()}:{line} in lost)"


def test_a_line_of_a_library_is_named_only_where_the_user_has_none():
    with pytest.raises(ValueError) as caught:
        json.loads("{")
    assert f"({shown_path()}:" in described(caught.value)
    caught.value.__traceback__ = caught.value.__traceback__.tb_next
    assert "decoder.py:" in described(caught.value)


def test_a_message_that_holds_a_traceback_is_reduced_to_its_end():
    inner = 'Traceback (most recent call last):\n  File "/there/game.py", line 7, in step\n    x\nKeyError: 3\n'
    told = described(RuntimeError(f"INTERNAL: {inner}"))
    assert told == "RuntimeError: INTERNAL: KeyError: 3 (/there/game.py:7 in step)"


def test_control_codes_are_shown_and_not_sent_to_the_terminal():
    assert printable("a\x1b[2J\x07\nb\tü") == "a\\x1b[2J\\x07\nb\tü"


def shown_path():
    return os.path.relpath(__file__)
