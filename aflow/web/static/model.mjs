// A job over time: rates from the differences of snapshots, and their history. No elements here.

/** The number of points of the charts: seconds. */
const HISTORY = 300;

/** Seconds between two snapshots after which a chart has a gap. */
const GAP = 4;

/** Operations that move records to other tasks or keys, and do nothing else. */
const ROUTING = new Set(["key_by", "rebalance", "broadcast", "partition_by"]);

const TIMES = ["busy", "idle", "backpressured", "calling", "aligning"];

export class JobModel {
  constructor() {
    this.description = null;
    this.snapshot = null;
    this.checkpoints = new Map();
    this.clear();
  }

  clear() {
    this.before = null;
    this.steps = new Map();
    this.tasks = new Map();
    this.totals = {};
    this.history = { time: [], in: [], out: [], p50: [], p99: [] };
    this.stepHistory = new Map();
  }

  /** Take the description of a job; return true if its graph is another one. */
  describe(description) {
    const graph = JSON.stringify(description.graph);
    const changed = this.description === null || this.graphText !== graph;
    if (changed) {
      this.clear();
      this.checkpoints.clear();
    }
    this.graphText = graph;
    this.description = description;
    this.addCheckpoints(description.checkpoints);
    return changed;
  }

  /** Take a snapshot; rates are those since the preceding one. */
  update(snapshot) {
    if (this.snapshot !== null && snapshot.steady === this.snapshot.steady) return;
    this.before = comparable(this.snapshot, snapshot) ? this.snapshot : null;
    this.snapshot = snapshot;
    const seconds = this.before === null ? null : snapshot.steady - this.before.steady;
    this.addCheckpoints(snapshot.checkpoints);
    this.updateSteps(seconds);
    this.updateTasks(seconds);
    this.updateTotals();
    this.remember(seconds);
  }

  addCheckpoints(rows) {
    for (const row of rows) this.checkpoints.set(`${row.id} ${row.triggered_at}`, row);
    for (const key of [...this.checkpoints.keys()].slice(0, -100)) this.checkpoints.delete(key);
  }

  updateSteps(seconds) {
    const former = this.before?.metrics.steps ?? {};
    for (const step of this.description.graph.steps) {
      const now = this.snapshot.metrics.steps[step.name] ?? null;
      const then = former[step.name] ?? null;
      const rate = (read) => rateOf(read, now, then, seconds);
      const sides = new Map();
      for (const [tag, total] of Object.entries(now?.sides ?? {})) {
        sides.set(tag, { total, rate: rate((of) => of.sides[tag] ?? 0) });
      }
      this.steps.set(step.name, {
        ...step,
        metrics: now,
        inRate: rate((of) => of.records_in),
        outRate: rate((of) => of.records_out),
        callRate: now?.calls ? rate((of) => of.calls?.calls ?? 0) : null,
        sides,
      });
    }
  }

  updateTasks(seconds) {
    const former = subtasks(this.before);
    const present = subtasks(this.snapshot);
    for (const task of this.description.graph.tasks) {
      const now = present.get(task.name) ?? [];
      const then = former.get(task.name) ?? [];
      const rows = now.map((one, index) => ({
        subtask: one.subtask,
        queued: one.queued_records,
        shares: sharesOf(one, then[index], seconds),
      }));
      this.tasks.set(task.index, {
        ...task,
        subtasks: rows,
        queued: sum(rows.map((one) => one.queued)),
        shares: Object.fromEntries(TIMES.map((name) => [name, mean(rows.map((one) => one.shares[name]))])),
      });
    }
  }

  updateTotals() {
    const steps = [...this.steps.values()];
    const sources = steps.filter((step) => step.kind === "source");
    const sinks = steps.filter((step) => step.kind === "sink");
    const lags = sinks.map((step) => step.metrics?.lag_ms ?? null).filter((lag) => lag !== null);
    const pairs = this.snapshot.metrics.latencies;
    this.totals = {
      in: sum(sources.map((step) => step.outRate)),
      out: sum(sinks.map((step) => step.inRate)),
      lag: lags.length ? Math.max(...lags) : null,
      queued: sum([...this.tasks.values()].map((task) => task.queued)),
      latency: pairs.reduce((worst, pair) => (worst === null || pair.p99_ms > worst.p99_ms ? pair : worst), null),
    };
  }

  remember(seconds) {
    const at = this.snapshot.at / 1000;
    const history = this.history;
    if (seconds !== null && seconds > GAP) this.point(at - seconds / 2, null);
    this.point(at, seconds);
    while (history.time.length > HISTORY) for (const values of Object.values(history)) values.shift();
    for (const step of this.steps.values()) {
      const values = this.stepHistory.get(step.name) ?? { in: [], out: [] };
      const missing = history.time.length - values.in.length - 1;
      for (let index = 0; index < missing; index += 1) {
        values.in.push(null);
        values.out.push(null);
      }
      values.in.push(step.inRate);
      values.out.push(step.outRate);
      while (values.in.length > history.time.length) {
        values.in.shift();
        values.out.shift();
      }
      this.stepHistory.set(step.name, values);
    }
  }

  point(at, seconds) {
    const known = seconds !== null;
    this.history.time.push(at);
    this.history.in.push(known ? this.totals.in : null);
    this.history.out.push(known ? this.totals.out : null);
    this.history.p50.push(known ? (this.totals.latency?.p50_ms ?? null) : null);
    this.history.p99.push(known ? (this.totals.latency?.p99_ms ?? null) : null);
  }

  /** Return the steps and edges to show: without those that only route, unless `all`. */
  visible(all) {
    const { steps, edges } = this.description.graph;
    const inputs = new Map(steps.map((step) => [step.name, edges.filter((edge) => edge.to === step.name)]));
    const read = new Set(edges.map((edge) => edge.from));
    const hidden = new Set();
    for (const step of steps) {
      const routes = ROUTING.has(step.operation) && inputs.get(step.name).length === 1 && read.has(step.name);
      if (!all && routes) hidden.add(step.name);
    }
    const shown = [];
    for (const edge of edges) {
      if (hidden.has(edge.to)) continue;
      let origin = edge;
      while (hidden.has(origin.from)) origin = inputs.get(origin.from)[0];
      shown.push({
        id: JSON.stringify([edge.from, edge.to, edge.side, edge.role]),
        from: origin.from,
        to: edge.to,
        side: origin.side,
        role: edge.role,
        chained: edge.chained,
        last: edge,
      });
    }
    return { steps: steps.filter((step) => !hidden.has(step.name)), edges: shown };
  }

  /** Return the records/s of an edge; null if it is not known. */
  edgeRate(edge) {
    const step = this.steps.get(edge.from);
    if (!step?.metrics) return null;
    return edge.side === null ? step.outRate : (step.sides.get(edge.side)?.rate ?? 0);
  }
}

/** True if counters of `now` continue those of `then`: of the same job, without a restart between them. */
function comparable(then, now) {
  return then !== null && now.steady > then.steady && now.metrics.restarts === then.metrics.restarts;
}

function rateOf(read, now, then, seconds) {
  if (now === null || then === null || seconds === null) return null;
  const difference = read(now) - read(then);
  return difference < 0 ? null : difference / seconds;
}

function subtasks(snapshot) {
  const found = new Map();
  for (const task of snapshot?.metrics.tasks ?? []) {
    if (!found.has(task.name)) found.set(task.name, []);
    found.get(task.name).push(task);
  }
  return found;
}

function sharesOf(now, then, seconds) {
  const share = (name) => {
    if (!then || seconds === null) return null;
    return Math.min(1, Math.max(0, (now[`${name}_s`] - then[`${name}_s`]) / seconds));
  };
  return Object.fromEntries(TIMES.map((name) => [name, share(name)]));
}

function sum(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((total, value) => total + value, 0) : null;
}

function mean(values) {
  const total = sum(values);
  return total === null ? null : total / values.length;
}
