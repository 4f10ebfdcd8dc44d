"""The smallest pipeline: from a list, through two steps, to the terminal.

Build the flow first, then run it; each record passes through all steps.

Prints:

    HELLO
    STREAM
"""

import asyncio

import aflow as af


def build() -> af.Flow:
    flow = af.Flow("hello")
    words = flow.source(["hello", "", "stream"])
    words.filter(bool).map(str.upper).to(af.CallbackSink(print))
    return flow


if __name__ == "__main__":
    asyncio.run(build().run())
