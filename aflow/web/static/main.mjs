// The page: chooses a job, follows its events, and passes them to the parts.

import { connectActions, updateActions } from "./actions.mjs";
import { Chart } from "./charts.mjs";
import { JobEvents, listJobs, setReadToken } from "./connection.mjs";
import { byId, element, reconcile, replaceIfChanged, setText } from "./dom.mjs";
import { clock, compact, duration } from "./format.mjs";
import { Graph } from "./graph.mjs";
import { JobModel } from "./model.mjs";
import { StepPanel } from "./panel.mjs";
import { errorDetails, showBlocked, showCheckpoints, showExceptions, showFigures, showSteps } from "./tables.mjs";

/** Milliseconds between two looks at the list of jobs. */
const LIST_EVERY = 3_000;

const ENDED = ["finished", "cancelled", "failed"];

class Page {
  constructor() {
    this.model = new JobModel();
    this.events = null;
    this.job = null;
    this.chosen = new URLSearchParams(location.hash.slice(1)).get("job");
    this.statuses = new Map();
    this.state = "connecting";
    this.retryAt = null;
    this.graph = new Graph(byId("graph-scroll"), byId("graph"), (name) => this.select(name, byId("graph-scroll")));
    this.panel = new StepPanel(() => this.select(null));
    const pair = (a, b) => [{ name: a, colour: "line-a" }, { name: b, colour: "line-b", dash: [6, 3] }];
    this.throughput = new Chart(byId("throughput"), pair("read", "written"), compact);
    this.latency = new Chart(byId("latency"), pair("p50", "p99"), duration);
    this.durations = new Chart(byId("durations"), [{ name: "duration", colour: "line-a" }], duration, { points: true });
    connectActions(() => this.job);
    byId("skip").addEventListener("click", () => byId("steps").focus());
    byId("routing").addEventListener("change", () => this.redraw());
    byId("job-select").addEventListener("change", (event) => this.choose(event.target.value));
    byId("read-form").addEventListener("submit", (event) => {
      event.preventDefault();
      setReadToken(byId("read-token").value);
      this.list();
    });
    setInterval(() => this.showConnection(), 1000);
    this.list();
  }

  /** Look at the list of jobs, again and again: jobs begin, end, and are replaced. */
  async list() {
    clearTimeout(this.listing);
    try {
      this.showJobs(await listJobs());
      byId("read-form").hidden = true;
    } catch (error) {
      if (error.status === 401) {
        byId("read-form").hidden = false;
        setText(byId("read-error"), sessionStorage.getItem("aflow.read") === null ? "" : "The token is wrong.");
        return;
      }
      if (this.events === null || this.events.closed) this.onState("disconnected", LIST_EVERY);
    }
    this.listing = setTimeout(() => this.list(), LIST_EVERY);
  }

  showJobs(jobs) {
    const names = jobs.map((job) => job.name);
    this.statuses = new Map(jobs.map((job) => [job.name, job.status]));
    byId("job-choice").hidden = names.length < 2;
    reconcile(byId("job-select"), names, {
      key: (name) => name,
      make: (name) => element("option", { value: name, text: name }),
      update: () => {},
    });
    if (names.length === 0) {
      this.notify("No job is there. The page shows the next one when it starts.");
      if (this.job === null) this.onState("waiting");
      return;
    }
    if (this.job === null || !names.includes(this.job)) {
      this.choose(names.includes(this.chosen) ? this.chosen : names[0]);
    } else if (this.events.closed && !(this.state === "ended" && ENDED.includes(this.statuses.get(this.job)))) {
      this.follow();
    }
    byId("job-select").value = this.job;
  }

  choose(name) {
    if (name === this.job) return;
    this.job = name;
    const hash = new URLSearchParams({ job: name });
    history.replaceState(null, "", `#${hash}`);
    this.model = new JobModel();
    this.select(null);
    setText(byId("job-name"), name);
    document.title = `${name} · aflow`;
    this.follow();
  }

  follow() {
    this.events?.close();
    const events = new JobEvents(this.job, {
      onEvent: (name, data) => events === this.events && this.onEvent(name, data),
      onState: (state, detail) => events === this.events && this.onState(state, detail),
    });
    this.events = events;
    events.run();
  }

  onEvent(name, data) {
    if (name === "job") {
      if (this.model.describe(data)) {
        byId("job").hidden = false;
        this.redraw();
      }
      this.notify("");
    } else if (name === "snapshot") {
      this.model.update(data);
      this.show();
    }
  }

  onState(state, detail) {
    if (state === "refused" && detail.status === 401) {
      this.list();
      return;
    }
    this.state = state;
    this.retryAt = ["disconnected", "crowded"].includes(state) ? Date.now() + detail : null;
    this.showConnection();
  }

  showConnection() {
    const texts = {
      connecting: "connecting",
      live: "live",
      waiting: "waiting for a job",
      ended: "ended",
      refused: "not available",
      disconnected: "disconnected",
      crowded: "too many clients",
    };
    byId("connection").dataset.state = this.state;
    document.body.classList.toggle("stale", this.retryAt !== null);
    setText(byId("connection-state"), texts[this.state]);
    const seconds = this.retryAt === null ? 0 : Math.max(0, Math.ceil((this.retryAt - Date.now()) / 1000));
    setText(byId("connection-retry"), this.retryAt === null ? "" : `, next attempt in ${seconds} s`);
  }

  notify(text) {
    byId("notice").hidden = text === "";
    setText(byId("notice"), text);
  }

  select(name, opener) {
    if (name === null) this.panel.close();
    else this.panel.open(this.model, name, opener);
    this.graph.select(name);
  }

  redraw() {
    if (this.model.description === null) return;
    this.visible = this.model.visible(byId("routing").checked);
    this.graph.draw(this.model, byId("routing").checked);
    if (this.model.snapshot !== null) this.show();
  }

  show() {
    const { model } = this;
    const { snapshot } = model;
    const status = byId("status");
    status.hidden = false;
    status.dataset.status = snapshot.status;
    setText(status, snapshot.status);
    updateActions(model.description, snapshot);
    this.showFailure();
    showFigures(model);
    this.graph.update();
    showSteps(model, this.visible.steps, (name, opener) => this.select(name, opener));
    const { time, in: read, out: written, p50, p99 } = model.history;
    this.throughput.set(time, read, written);
    this.latency.set(time, p50, p99);
    const worst = model.totals.latency;
    setText(byId("latency-pair"), worst === null ? "not measured yet" : `${worst.source} to ${worst.sink}`);
    const ended = [...model.checkpoints.values()].filter((row) => row.duration_ms !== null);
    this.durations.set(ended.map((row) => row.triggered_at / 1000), ended.map((row) => row.duration_ms));
    showCheckpoints(model);
    showExceptions(model);
    showBlocked(model);
    this.panel.update(model);
  }

  /** Show the present failure at the top: that of an ended job, or the cause of a restart under way. */
  showFailure() {
    const { failure, restarts, status } = this.model.snapshot;
    const cause = failure ?? (status === "restarting" ? (restarts.at(-1)?.cause ?? null) : null);
    const box = byId("failure");
    box.hidden = cause === null;
    if (cause === null) return;
    const last = restarts.at(-1);
    const title = failure === null ? `Restarting after a failure at ${clock(last.failed_at)}` : "The job has failed";
    replaceIfChanged(box, [title, cause], () => [element("h2", { text: title }), ...errorDetails(cause)]);
  }
}

new Page();
