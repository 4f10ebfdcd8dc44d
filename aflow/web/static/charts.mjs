// Lines over time.

import { colour, onThemeChange } from "./theme.mjs";

/** Seconds that are shown at least, so that the first points do not move the axis. */
const SHORTEST = 60;

export class Chart {
  /** `lines` are names with a colour and a dash pattern; `format` makes the text of a value. */
  constructor(container, lines, format, { height = 150, points = false } = {}) {
    this.container = container;
    this.lines = lines;
    this.format = format;
    this.height = height;
    this.points = points;
    this.data = [[], ...lines.map(() => [])];
    this.plot = null;
    container.style.height = `${height + 26}px`; // with the legend, so that nothing moves when it appears
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(container);
    onThemeChange(() => this.build());
  }

  /** Draw values over `times` (seconds since the epoch), one list for each line. */
  set(times, ...values) {
    this.data = [times, ...values];
    if (this.plot === null) this.build();
    else this.plot.setData(this.data);
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  resize() {
    const width = this.container.clientWidth;
    if (width === 0) return;
    if (this.plot === null) this.build();
    else this.plot.setSize({ width, height: this.height });
  }

  build() {
    const width = this.container.clientWidth;
    this.plot?.destroy();
    this.plot = null;
    if (width === 0) return;
    const text = { stroke: colour("muted"), font: "11px system-ui, sans-serif" };
    const grid = { grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 } };
    const options = {
      width,
      height: this.height,
      pxAlign: 1,
      cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      hooks: { setCursor: [(plot) => showLatest(plot)], setData: [(plot) => showLatest(plot)] },
      scales: {
        x: { time: true, range: () => shownTimes(this.data[0]) },
        y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] },
      },
      axes: [
        { ...text, ...grid, space: 70, values: (plot, times) => times.map(clock), size: 28 },
        { ...text, ...grid, size: 58, space: 32, values: (plot, values) => values.map((value) => (this.data[0].length ? this.format(value) : "")) },
      ],
      series: [
        { label: "", value: (plot, time) => (time === null ? "" : clock(time)) },
        ...this.lines.map((line) => ({
          label: line.name,
          stroke: colour(line.colour),
          width: 1.8,
          dash: line.dash,
          points: { show: this.points, size: 5, fill: colour(line.colour) },
          value: (plot, value) => (value === null || value === undefined ? "–" : this.format(value)),
        })),
      ],
    };
    this.plot = new uPlot(options, this.data, this.container);
  }
}

/** Return the first and the last time of the axis. Without a value it is the last minute; uPlot shows a day for one value. */
function shownTimes(times) {
  const end = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(times[0] ?? end, end - SHORTEST), end];
}

/** Show the latest values in the legend while no others are pointed at. */
function showLatest(plot) {
  if (plot.cursor.idx === null || plot.cursor.idx === undefined) {
    const last = plot.data[0].length - 1;
    if (last >= 0) plot.setLegend({ idx: last }, false);
  }
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}
