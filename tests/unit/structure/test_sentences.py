"""The list of what users read has every kind, and holds the rules of words that a machine can check."""

from collections import Counter

import pytest

from tools.sentences import Sentence, faults, of_python, of_script, of_template, sentences


def test_no_sentence_that_users_see_breaks_the_rules_of_words() -> None:
    found = list(sentences())
    kinds = Counter(sentence.kind for sentence in found)
    assert [f"{sentence.place}: {fault}" for sentence in found for fault in faults(sentence)] == []
    # A reader who finds nothing any more would pass, too.
    assert {kind: count > 25 for kind, count in kinds.items()} == dict.fromkeys(
        ("pages", "scripts", "commands", "answers"), True
    )


def test_python_is_read_without_what_nobody_sees() -> None:
    source = '''
"""A docstring that no user ever sees."""
log.info("a log line of many words")
SQL = "SELECT a FROM b WHERE c"
raise NotFoundError(f"There is no job {job.id} of {owner}. Look at the list.")
@app.command("show")
def show(job: Annotated[str, Option(help="The id of a job.")]) -> None:
    """Show one job
    as it is."""
def other() -> None:
    """Not the help of a command."""
'''
    assert sorted(text for _, text in of_python(source, with_help=True)) == [
        "SELECT a FROM b WHERE c",  # left out by the list
        "Show one job as it is.",
        "The id of a job.",
        "There is no job {} of {}. Look at the list.",
        "show",
    ]


def test_templates_are_read_by_block() -> None:
    source = """{# a note #}<p class="x y z">You have <b>{{ n }}</b>
    {% if n %}jobs{% endif %} now.</p>
<button aria-label="Cancel this job now"></button><script>no text of a page</script>"""
    assert [" ".join(text.split()) for _, text in of_template(source)] == [
        "You have {} jobs now.",
        "Cancel this job now",
    ]


def test_scripts_are_read_by_literal() -> None:
    source = '// "not this one here"\nsay(`The job ${id} ended at ${when(now)}.`, "and it is over");'
    assert [text for _, text in of_script(source)] == ["The job {} ended at {}.", "and it is over"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("answers", "Your card is free."),
        ("answers", "It is first in line now."),
        ("answers", "You are told of it."),
        ("pages", "Load the page anew."),
        ("pages", "It ended. What is lost stays lost."),
        ("answers", "Nothing can be had then."),
        ("commands", "Send it by POST /v1/jobs."),
    ],
)
def test_wrong_words_are_found(kind: str, text: str) -> None:
    assert list(faults(Sentence(kind, "x:1", text)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("answers", "Send it by POST /v1/jobs."),
        ("commands", "What is waiting for it?"),
        ("pages", "Each line of the output is a sentence."),
    ],
)
def test_right_words_are_let_be(kind: str, text: str) -> None:
    assert list(faults(Sentence(kind, "x:1", text))) == []
