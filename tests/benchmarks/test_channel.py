"""An answer is taken only for the request it answers, whatever else comes; foreign text is fit to be shown."""

from __future__ import annotations

import json
import os
import unicodedata

import pytest

from benchmarks.channel import (
    LONGEST_DETAIL,
    LONGEST_SENTENCE,
    LOWEST,
    BrokenChannel,
    WorkerEnd,
    first_line,
    free_port,
    lines,
    new_seal,
    opened,
    sealed,
    sentence,
)


@pytest.fixture
def channel():
    """(what the coordinator writes to, what it reads from, the other end)."""
    requests, write = os.pipe()
    read, answers = os.pipe()
    end = WorkerEnd(requests, answers)
    yield write, read, end
    os.close(write)
    os.close(read)
    end._lines.close()
    os.close(end._answers)


def test_an_answer_is_read_as_it_was_written(channel):
    write, read, end = channel
    request = {"op": "check", "seal": new_seal(), "fields": {"name": 'a "ü" \n'}}
    os.write(write, json.dumps(request).encode() + b"\n")
    assert next(end.requests()) == request
    end.answer({"ok": True, "result": [1.5, None, "ü\n"]})
    line, newline, rest = os.read(read, 10_000).partition(b"\n")
    assert (newline, rest) == (b"\n", b"")
    assert json.loads(opened(line, request["seal"])) == {"ok": True, "result": [1.5, None, "ü\n"]}


@pytest.mark.parametrize(
    "line", [b"", b" ", b"{}", b'{"ok": true}', b"0" * 32 + b' {"ok": true}', b"\xff\x00", b"x" * 100_000]
)
def test_what_is_not_sealed_is_no_answer(line):
    with pytest.raises(BrokenChannel, match=f"{len(line):,} bytes that are no answer"):
        opened(line, new_seal())


def test_an_answer_answers_one_request_and_is_not_changed():
    seal, line = new_seal(), b""
    line = sealed(b'{"seconds": 2}', seal).removesuffix(b"\n")
    assert opened(line, seal) == b'{"seconds": 2}'
    for other, changed in ((new_seal(), line), (seal, line.replace(b"2}", b"1}")), ("", line)):
        with pytest.raises(BrokenChannel):
            opened(changed, other)


def test_nothing_is_sent_of_a_value_that_json_has_not(channel):
    _, read, end = channel
    nested = []
    nested.append(nested)
    for value in (object(), {1, 2}, nested):
        with pytest.raises((TypeError, ValueError, RecursionError)):
            end.answer({"result": value})
    os.set_blocking(read, False)
    with pytest.raises(BlockingIOError):
        os.read(read, 1)


def test_an_exchange_answers_one_request_and_takes_the_next(channel):
    write, read, end = channel
    first, second = ({"op": op, "seal": new_seal()} for op in ("script", "resume"))
    os.write(write, b"".join(json.dumps(one).encode() + b"\n" for one in (first, second)))
    assert next(end.requests()) == first
    assert end.exchange({"result": "at a timer"}) == second
    end.answer({"result": "ended"})
    told = [
        opened(line, one["seal"]) for line, one in zip(os.read(read, 1000).splitlines(), (first, second), strict=True)
    ]
    assert told == [b'{"result": "at a timer"}', b'{"result": "ended"}']


def test_what_foreign_code_replaces_is_not_what_the_channel_uses(channel, monkeypatch):
    write, read, end = channel
    seal = new_seal()
    os.write(write, json.dumps({"seal": seal}).encode() + b"\n")
    next(end.requests())
    forged = lambda *_, **__: '{"ok": true, "result": 1e-9}'  # noqa: E731
    for name in ("dumps", "JSONEncoder.encode", "encoder.JSONEncoder.iterencode", "encoder.c_make_encoder"):
        monkeypatch.setattr(f"json.{name}", forged)
    monkeypatch.setattr(os, "write", lambda *_: 0)
    end.answer({"ok": False})
    assert opened(os.read(read, 1000).strip(), seal) == b'{"ok": false}'


def test_its_descriptors_are_high_and_not_inherited(channel):
    _, _, end = channel
    for descriptor in (end._lines.fileno(), end._answers):
        assert descriptor >= LOWEST
        assert not os.get_inheritable(descriptor)


ODD = "".join(map(chr, [*range(0x20), 0x7F, 0x9B, 0xAD, 0x202E, 0x2028, 0xD800, 0x1F600, ord("ü")]))


def test_a_port_is_none_that_a_connection_is_given():
    assert free_port() < 32768


def test_a_sentence_is_one_printable_line_of_bounded_length():
    assert sentence("as it is, ü 😀") == "as it is, ü 😀"
    shown = sentence(ODD)
    assert shown.isprintable()
    assert not any(unicodedata.category(letter).startswith("C") for letter in shown)
    assert "\\x1b" in shown
    assert sentence("x" * 300_000) == "x" * LONGEST_SENTENCE + " ... (299,400 more characters)"


def test_lines_are_sentences_and_the_last_are_kept():
    assert lines("a\tb\n\x1b[2Jc\r\nd") == "a    b\n\\x1b[2Jc\nd"
    many = lines("\n".join(f"line {n}" for n in range(10_000)))
    assert len(many) == LONGEST_DETAIL
    assert many.endswith("line 9998\nline 9999")


def test_an_exception_that_cannot_speak_is_spoken_for():
    class Speechless(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    assert first_line(Speechless()) == "its text cannot be had: KeyboardInterrupt"
    assert first_line(ValueError("")) == "no message"
    assert first_line(ValueError("\n first\nsecond")) == "first"
