"""A step with a side output: numbers are emitted, invalid lines are sent to another stream.

A ``Tag`` names a side output and has the type of its records.

Prints:

    sum: 42
    line 2: 'x' is not a number
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import aflow as af


@dataclass(frozen=True)
class Bad:
    line: int
    text: str


BAD = af.Tag[Bad]("bad lines")


class Parse(af.ProcessFunction[tuple[int, str], int]):
    def process(self, value: tuple[int, str], ctx: af.ProcessContext) -> Iterable[int]:
        line, text = value
        if text.isdigit():
            return [int(text)]
        ctx.side(BAD, Bad(line, text))
        return []


def build(lines: list[str], numbers: af.Sink[int], bad: af.Sink[Bad]) -> af.Flow:
    flow = af.Flow("parse")
    parsed = flow.source(enumerate(lines, start=1), name="lines").process(Parse(), name="parse")
    parsed.to(numbers, name="numbers")
    parsed.side(BAD).to(bad, name="bad")
    return flow


if __name__ == "__main__":
    numbers, bad = af.CollectSink[int](), af.CollectSink[Bad]()
    asyncio.run(build(["40", "x", "2"], numbers, bad).run())
    print("sum:", sum(numbers.values))
    for one in bad.values:
        print(f"line {one.line}: {one.text!r} is not a number")
