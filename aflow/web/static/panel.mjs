// The panel with everything about one step.

import { Chart } from "./charts.mjs";
import { byId, element, reconcile, replaceIfChanged, setText } from "./dom.mjs";
import { clock, compact, count, duration, instant, percent } from "./format.mjs";

const CALLS = [
  ["in_flight", "In flight"],
  ["limit", "Limit"],
  ["waiting", "Waiting records"],
  ["calls", "Calls"],
  ["retries", "Retries"],
  ["timeouts", "Timeouts"],
  ["dropped", "Dropped records"],
  ["dead_letters", "Dead letters"],
  ["fallbacks", "Fallbacks"],
  ["cache_hits", "Cache hits"],
  ["cache_misses", "Cache misses"],
  ["merged", "Merged records"],
  ["abandoned", "Abandoned calls"],
];

const SHARES = ["busy", "backpressured", "calling", "aligning", "idle"];

export class StepPanel {
  constructor(onClose) {
    this.panel = byId("panel");
    this.body = byId("panel-body");
    this.name = null;
    this.chart = null;
    this.opener = null;
    byId("panel-close").addEventListener("click", () => onClose());
    this.panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") onClose();
    });
  }

  /** Show a step; `opener` gets the focus back. */
  open(model, name, opener) {
    if (opener) this.opener = opener;
    this.name = name;
    this.panel.hidden = false;
    document.body.classList.add("with-panel");
    this.build();
    this.update(model);
    if (opener) byId("panel-title").focus();
  }

  close() {
    if (this.name === null) return;
    this.name = null;
    this.chart?.close();
    this.chart = null;
    this.panel.hidden = true;
    document.body.classList.remove("with-panel");
    if (this.opener?.isConnected) this.opener.focus();
    this.opener = null;
  }

  build() {
    this.chart?.close();
    const chart = element("div", { class: "chart" });
    this.parts = {
      flow: facts("Records"),
      task: facts("Task"),
      calls: facts("Calls"),
      latency: facts("Latency"),
      sides: facts("Side outputs"),
    };
    this.shares = element("div", { class: "shares", role: "img" }, ...SHARES.map((name) => element("span", { class: name })));
    this.parts.task.insertBefore(this.shares, this.parts.task.lastChild);
    this.samples = element("section", {}, element("h3", { text: "Samples of emitted records" }), element("div"));
    this.body.replaceChildren(
      this.parts.flow,
      chart,
      this.parts.task,
      this.parts.calls,
      this.parts.latency,
      this.parts.sides,
      this.samples,
    );
    const lines = [{ name: "in/s", colour: "line-a" }, { name: "out/s", colour: "line-b", dash: [6, 3] }];
    this.chart = new Chart(chart, lines, compact, { height: 120 });
  }

  /** Show the present values. */
  update(model) {
    if (this.name === null) return;
    const step = model.steps.get(this.name);
    if (!step) return;
    const task = model.tasks.get(step.task);
    setText(byId("panel-title"), step.name);
    const times = step.parallelism > 1 ? `, ${step.parallelism} subtasks` : "";
    setText(byId("panel-kind"), `${step.operation}${step.detail ? `: ${step.detail}` : ""}${times}`);
    this.showFlow(step);
    this.showTask(task);
    this.showCalls(step);
    this.showLatency(model, step);
    fill(this.parts.sides, [...step.sides].map(([tag, side]) => [tag, `${count(side.total)} · ${compact(side.rate)}/s`]));
    this.showSamples(model, step);
    const history = model.stepHistory.get(step.name) ?? { in: [], out: [] };
    this.chart.set(model.history.time.slice(-history.in.length), history.in, history.out);
  }

  showFlow(step) {
    const { metrics } = step;
    fill(this.parts.flow, [
      ["In", step.kind === "source" ? null : `${count(metrics?.records_in)} · ${compact(step.inRate)}/s`],
      ["Out", step.kind === "sink" ? null : `${count(metrics?.records_out)} · ${compact(step.outRate)}/s`],
      ["Watermark", watermark(metrics)],
      ["Watermark lag", duration(metrics?.lag_ms)],
    ]);
  }

  showTask(task) {
    const text = SHARES.filter((name) => task.shares[name]).map((name) => `${name} ${percent(task.shares[name])}`);
    this.shares.setAttribute("aria-label", text.join(", ") || "not known yet");
    SHARES.forEach((name, index) => {
      this.shares.children[index].style.flexGrow = String(task.shares[name] ?? 0);
    });
    fill(this.parts.task, [
      ...SHARES.filter((name) => name === "busy" || name === "backpressured" || name === "idle" || task.shares[name]).map((name) => [
        name[0].toUpperCase() + name.slice(1),
        percent(task.shares[name]),
      ]),
      ["Queued records", count(task.queued)],
      ...(task.parallelism > 1
        ? task.subtasks.map((one) => [
            `Subtask ${one.subtask}`,
            `busy ${percent(one.shares.busy)}, backpressured ${percent(one.shares.backpressured)}, ${count(one.queued)} queued`,
          ])
        : []),
    ]);
  }

  showCalls(step) {
    const calls = step.metrics?.calls;
    fill(
      this.parts.calls,
      calls ? [["Calls/s", compact(step.callRate)], ...CALLS.map(([name, label]) => [label, count(calls[name])])] : [],
    );
  }

  showLatency(model, step) {
    const pairs = model.snapshot.metrics.latencies.filter((pair) => pair.source === step.name || pair.sink === step.name);
    fill(
      this.parts.latency,
      pairs.map((pair) => [
        pair.source === step.name ? `to ${pair.sink}` : `from ${pair.source}`,
        `p50 ${duration(pair.p50_ms)} · p99 ${duration(pair.p99_ms)} · max ${duration(pair.max_ms)}`,
      ]),
    );
  }

  showSamples(model, step) {
    this.samples.hidden = step.kind === "sink";
    const body = this.samples.lastChild;
    if (!model.description.sampling) {
      replaceIfChanged(body, "off", () => [element("p", { class: "empty", text: "Off. Start the job with Options(samples=RecordSamples()) to see records here." })]);
      return;
    }
    const samples = model.snapshot.samples.filter((one) => one.step === step.name);
    if (samples.length === 0) {
      replaceIfChanged(body, "none", () => [element("p", { class: "empty", text: "No sample yet." })]);
      return;
    }
    const sides = [...new Set(samples.map((one) => one.side))];
    replaceIfChanged(body, samples, () =>
      sides.flatMap((side) => [
        element("h4", { text: `to ${readers(model, step.name, side).join(", ")}${side === null ? "" : ` (side output ${side})`}` }),
        element("ul", { class: "samples" }, ...samples.filter((one) => one.side === side).toReversed().map(sample)),
      ]),
    );
  }
}

function sample(one) {
  const event = one.timestamp === null ? "" : ` · event time ${instant(one.timestamp)}`;
  return element("li", {}, element("code", { text: one.text }), element("span", { class: "note", text: `${clock(one.taken_at)}${event}` }));
}

/** Return the readers of an output, those behind steps that only route included. */
function readers(model, name, side) {
  const reads = (edge) => edge.from === name && edge.side === side;
  const found = model.visible(false).edges.filter(reads);
  return (found.length ? found : model.description.graph.edges.filter(reads)).map((edge) => edge.to);
}

function watermark(metrics) {
  if (!metrics || metrics.watermark === null) return "–";
  return metrics.lag_ms === null ? "end of the input" : instant(metrics.watermark);
}

function facts(title) {
  return element("section", {}, element("h3", { text: title }), element("dl", { class: "facts" }));
}

/** Show pairs of a name and a value; hide the section without any. */
function fill(section, pairs) {
  const shown = pairs.filter(([, value]) => value !== null);
  section.hidden = shown.length === 0;
  reconcile(section.lastChild, shown, {
    key: ([name]) => name,
    make: ([name]) => element("div", {}, element("dt", { text: name }), element("dd")),
    update: (node, [, value]) => setText(node.lastChild, value),
  });
}
