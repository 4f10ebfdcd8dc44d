"""Sample tickets. Some are equal, and some are too much for the small model of ``fake_server``."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from llm_enrichment.tickets import Ticket

_PROBLEMS: Final = (
    "The invoice of {month} came twice.",
    "When do I get my refund for {month}?",
    "I forgot my password in {month}, and the mail to set a new one does not arrive.",
    "The login page says since {month} that it is closed for maintenance.",
    "The app crashes with an error when I open the report of {month}.",
    "Do you have an office in Lisbon since {month}?",
    "Die Rechnung vom {month} ist falsch.",  # the small model does not answer in JSON
)
_MONTHS: Final = ("January", "February", "March", "April", "May", "June")
_URGENT: Final = ("", " It is urgent!", " Please call me back today.")
#: One ticket in so many has a long log attached, which the small model refuses.
_LONG_EVERY: Final = 50
_LONG: Final = " This is the log:" + " 2025-06-01 12:00:00 connection closed by peer" * 60


def sample_tickets(count: int, *, seed: int = 1) -> Iterator[Ticket]:
    """Yield tickets with ids from 1; about one in four has the text of an earlier one."""
    random = Random(seed)
    texts: list[str] = []
    for number in range(1, count + 1):
        if texts and random.random() < 0.25:
            text = random.choice(texts)
        else:
            problem = random.choice(_PROBLEMS).format(month=random.choice(_MONTHS))
            text = f"{problem}{random.choice(_URGENT)} My customer number is {1000 + number}."
            if number % _LONG_EVERY == 0:
                text += _LONG
        texts.append(text)
        yield Ticket(number, text)
