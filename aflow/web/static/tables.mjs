// The figures at the top, the table of the steps, and the lists of checkpoints, exceptions and blockages.

import { byId, element, reconcile, replaceIfChanged, setText } from "./dom.mjs";
import { bytes, clock, compact, count, duration, instant, percent } from "./format.mjs";

export function showFigures(model) {
  const { totals, snapshot } = model;
  const { metrics } = snapshot;
  const last = metrics.checkpoints;
  const completed = [...model.checkpoints.values()].filter((one) => one.outcome === "completed").at(-1);
  const figures = [
    ["Read", totals.in === null ? "–" : `${compact(totals.in)}/s`, "by all sources"],
    ["Written", totals.out === null ? "–" : `${compact(totals.out)}/s`, "by all sinks"],
    ["Latency", duration(totals.latency?.p50_ms), totals.latency ? `p99 ${duration(totals.latency.p99_ms)}` : "not measured yet"],
    ["Watermark lag", duration(totals.lag), "of the slowest sink"],
    ["Queued", count(totals.queued), "between tasks"],
    ["Checkpoint", completed ? duration(completed.duration_ms) : "–", checkpointNote(model, completed, last)],
    ["Restarts", count(metrics.restarts), metrics.left_behind ? `${count(metrics.left_behind)} calls abandoned` : "after failures"],
    ["Loop blocked", `${count(metrics.blocked.times)}×`, metrics.blocked.times ? `longest ${duration(metrics.blocked.longest_ms)}` : "no blockage"],
  ];
  reconcile(byId("figures"), figures, {
    key: ([name]) => name,
    make: ([name]) => element("div", {}, element("dt", { text: name }), element("dd"), element("dd", { class: "note" })),
    update: (node, [, value, note]) => {
      setText(node.children[1], value);
      setText(node.children[2], note);
    },
  });
}

function checkpointNote(model, completed, totals) {
  if (!model.description.checkpointing) return "not enabled";
  if (totals.failed) return `${count(totals.completed)} completed, ${count(totals.failed)} failed`;
  return completed ? `${bytes(completed.bytes)}, ${clock(completed.triggered_at)}` : "none completed yet";
}

export function showSteps(model, steps, onSelect) {
  const heads = new Set();
  const rows = steps.map((step) => {
    const first = !heads.has(step.task);
    heads.add(step.task);
    return { step: model.steps.get(step.name), task: model.tasks.get(step.task), first };
  });
  reconcile(byId("step-rows"), rows, {
    key: ({ step }) => step.name,
    make: ({ step }) => {
      const button = element("button", { type: "button", class: "link", text: step.name });
      button.addEventListener("click", () => onSelect(step.name, button));
      const name = element("th", { scope: "row" }, button, element("span", { class: "kind" }));
      const cells = ["number wide", "number", "number", "number wide", "number wide", "number", "number wide"];
      return element("tr", {}, name, ...cells.map((kind) => element("td", { class: kind })));
    },
    update: (row, { step, task, first }) => {
      const [name, ...cells] = row.children;
      setText(name.lastChild, step.operation);
      row.classList.toggle("first-of-task", first);
      const { busy, backpressured } = task.shares;
      const calls = step.metrics?.calls;
      setText(cells[0], step.kind === "source" ? "" : compact(step.inRate));
      setText(cells[1], step.kind === "sink" ? "" : compact(step.outRate));
      showShare(cells[2], first ? busy : null, "busy", first);
      showShare(cells[3], first ? backpressured : null, "backpressured", first);
      setText(cells[4], first ? count(task.queued) : "");
      setText(cells[5], duration(step.metrics?.lag_ms));
      setText(cells[6], calls ? `${count(calls.in_flight)} of ${count(calls.limit)}` : "");
    },
  });
}

/** Shares are those of a whole task, and shown at its first step. */
function showShare(cell, share, name, first) {
  setText(cell, first ? percent(share) : "");
  cell.classList.toggle("share", first);
  cell.style.setProperty("--share", String(share ?? 0));
  cell.style.setProperty("--share-colour", `var(--${name})`);
}

export function showCheckpoints(model) {
  const rows = [...model.checkpoints.values()].reverse().slice(0, 30);
  byId("checkpoints").hidden = rows.length === 0;
  byId("no-checkpoints").hidden = rows.length > 0;
  setText(
    byId("no-checkpoints"),
    model.description.checkpointing ? "None has ended yet." : "The job was started without checkpointing.",
  );
  const longest = Math.max(...rows.map((row) => row.duration_ms ?? 0), 1);
  reconcile(byId("checkpoint-rows"), rows, {
    key: (row) => `${row.id} ${row.triggered_at}`,
    make: () => {
      const kinds = ["number", "", "wide", "wide", "number share", "number", "number wide", "number wide", "number wide", "number wide"];
      return element("tr", {}, ...kinds.map((kind) => element("td", { class: kind })));
    },
    update: (line, row) => {
      const cells = line.children;
      const texts = [
        String(row.id),
        row.outcome + (row.reason ? `: ${row.reason}` : ""),
        row.kind + (row.path ? ` in ${row.path}` : ""),
        clock(row.triggered_at),
        duration(row.duration_ms),
        bytes(row.bytes),
        duration(row.alignment_ms),
        duration(row.start_delay_ms),
        duration(row.sync_ms),
        count(row.in_flight_records),
      ];
      texts.forEach((text, index) => setText(cells[index], text));
      cells[1].className = row.outcome === "failed" ? "bad" : "";
      cells[3].title = instant(row.triggered_at);
      cells[4].style.setProperty("--share", String((row.duration_ms ?? 0) / longest));
    },
  });
}

export function showExceptions(model) {
  const { failure, restarts } = model.snapshot;
  const entries = restarts.map((one) => ({
    error: one.cause,
    title: `Restart ${one.attempt}`,
    at: one.failed_at,
  }));
  if (failure !== null) entries.push({ error: failure, title: "The job has failed", at: null });
  entries.reverse();
  byId("no-exceptions").hidden = entries.length > 0;
  byId("exceptions").hidden = entries.length === 0;
  replaceIfChanged(byId("exceptions"), entries, () =>
    entries.map(({ error, title, at }) =>
      element("li", {}, heading(title, at), ...errorDetails(error)),
    ),
  );
}

/** Return the elements that describe an error. */
export function errorDetails(error) {
  const facts = [
    ["Step", error.step],
    ["Record", error.record],
    ["Key", error.key],
    ["Timestamp", error.timestamp === null ? null : instant(error.timestamp)],
    ["Cause", error.cause ?? `${error.type}: ${error.message}`],
  ].filter(([, value]) => value !== null);
  const known = error.step === null && error.cause !== null;
  return [
    known ? element("p", { text: error.message }) : null,
    element("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })])),
    error.location === null ? null : place(error.location),
    ...error.notes.map((note) => element("p", { class: "note", text: note })),
  ].filter((part) => part !== null);
}

export function showBlocked(model) {
  const { blocked } = model.snapshot.metrics;
  const limit = model.description.configuration.options.watchdog;
  byId("no-blocked").hidden = blocked.latest.length > 0;
  byId("blocked").hidden = blocked.latest.length === 0;
  setText(
    byId("no-blocked"),
    limit === null ? "The watchdog is off (Options.watchdog)." : `No function has blocked it for longer than ${duration(limit * 1000)}.`,
  );
  const entries = blocked.latest.toReversed();
  replaceIfChanged(byId("blocked"), entries, () =>
    entries.map(({ ended_at: at, report }) =>
      element(
        "li",
        {},
        heading(`${duration(report.seconds * 1000)}${owner(report)}`, at),
        report.where === null ? element("p", { text: withoutPlace(report) }) : place(report.where),
      ),
    ),
  );
}

/** Return the cause of a blockage that no sample of the stack shows. */
function withoutPlace({ starved }) {
  return starved
    ? "The process did not get a processor, since other programs used the machine."
    : "A function that held the interpreter's lock all the time.";
}

/** Return the step and the resource of a blockage; nothing for code outside of steps. */
function owner({ step, resource }) {
  if (step === null) return "";
  return resource === null ? ` in step ${step}` : ` in resource ${resource} of step ${step}`;
}

function heading(title, at) {
  return element("h3", {}, element("span", { text: title }), at === null ? null : element("time", { datetime: instant(at), title: instant(at), text: clock(at) }));
}

function place(location) {
  const called = location.calls ? ` (in ${location.calls})` : "";
  return element(
    "div",
    { class: "place" },
    element("p", { text: `${location.function}${called}` }),
    element("p", { class: "path", text: `${location.file}:${location.line}` }),
    location.code ? element("pre", {}, element("code", { text: location.code })) : null,
  );
}
