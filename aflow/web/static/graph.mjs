// The graph of the steps, with the tasks as boxes around them.

import cytoscape from "./vendor/cytoscape.esm.min.mjs";
import dagre from "./vendor/cytoscape-dagre.min.mjs";
import { compact, cut, percent } from "./format.mjs";
import { colour, onThemeChange } from "./theme.mjs";

cytoscape.use(dagre);

const NODE = { width: 142, height: 42 };

/** The smallest scale at which text is legible; a wider graph is scrolled. */
const SMALLEST = 0.72;

const MARGIN = 14;

/** Characters that fit in a step. */
const NAME = 20;

/** Characters of the name of a side output. */
const SIDE = 14;

/** The distance of steps; with side outputs there is room for their names beside the arrow. */
const DISTANCE = { plain: 50, sides: 112 };

export class Graph {
  /** `onSelect` is called with the name of a step that is clicked. */
  constructor(scroll, container, onSelect) {
    this.scroll = scroll;
    this.container = container;
    this.model = null;
    this.selected = null;
    this.cy = cytoscape({
      container,
      autoungrabify: true,
      autounselectify: true,
      boxSelectionEnabled: false,
      userPanningEnabled: false,
      userZoomingEnabled: false,
      minZoom: SMALLEST,
      maxZoom: 1,
      style: style(),
    });
    this.cy.on("tap", "node[step]", (event) => onSelect(event.target.data("step")));
    this.cy.on("mouseover", "node[step]", () => container.classList.add("pointing"));
    this.cy.on("mouseout", "node[step]", () => container.classList.remove("pointing"));
    onThemeChange(() => this.cy.style(style()));
    new ResizeObserver(() => this.fit()).observe(scroll);
  }

  /** Draw the visible steps of a model. */
  draw(model, all) {
    this.model = model;
    const { steps, edges } = model.visible(all);
    this.edges = edges;
    const tasks = new Set(steps.map((step) => step.task));
    const elements = [
      ...[...tasks].map((index) => ({ data: { id: `task ${index}`, task: index, label: "", busy: 0, backpressured: 0 } })),
      ...steps.map((step) => ({
        data: {
          id: `step ${step.name}`,
          parent: `task ${step.task}`,
          step: step.name,
          kind: step.kind,
          label: `${cut(step.name, NAME)}\n${cut(operation(step), NAME + 4)}`,
        },
      })),
      ...edges.map((edge) => ({
        data: { id: `edge ${edge.id}`, source: `step ${edge.from}`, target: `step ${edge.to}`, label: "", width: 1 },
        classes: [edge.side === null ? "" : "side", edge.chained ? "chained" : ""].join(" "),
      })),
    ];
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(elements);
    });
    const rankSep = edges.some((edge) => edge.side !== null) ? DISTANCE.sides : DISTANCE.plain;
    this.cy.layout({ name: "dagre", rankDir: "LR", nodeSep: 26, rankSep, edgeSep: 10, fit: false }).run();
    this.select(this.selected);
    this.fit();
    this.scrollToSource();
    this.update();
  }

  /** Show the present rates and shares. */
  update() {
    if (this.model === null) return;
    this.cy.batch(() => {
      for (const edge of this.edges) {
        const rate = this.model.edgeRate(edge);
        const text = rate === null ? "" : compact(rate);
        const label = edge.side === null ? text : `${cut(edge.side, SIDE)}\n${text}`;
        const width = 1.2 + Math.log10(1 + (rate ?? 0)) * 0.7;
        const drawn = this.cy.getElementById(`edge ${edge.id}`);
        drawn.data({ label, width });
        drawn.toggleClass("still", !rate);
      }
      for (const task of this.model.tasks.values()) {
        const box = this.cy.getElementById(`task ${task.index}`);
        if (box.empty()) continue;
        const { busy, backpressured } = task.shares;
        const times = task.parallelism > 1 ? ` ×${task.parallelism}` : "";
        const waits = backpressured ? ` · backpressured ${percent(backpressured)}` : "";
        const label = busy === null ? `task ${task.index}${times}` : `busy ${percent(busy)}${waits}${times}`;
        box.data({ label, busy: busy ?? 0, backpressured: backpressured ?? 0 });
      }
    });
  }

  select(name) {
    this.selected = name;
    this.cy.nodes(".selected").removeClass("selected");
    if (name !== null) this.cy.getElementById(`step ${name}`).addClass("selected");
  }

  /** Scroll to the first source, if not all of the graph is visible. */
  scrollToSource() {
    const source = this.cy.nodes("[kind = 'source']").first();
    if (source.empty()) return;
    const { x1, y1, h } = source.renderedBoundingBox();
    this.scroll.scrollTo(x1 - 2 * MARGIN, y1 + h / 2 - this.scroll.clientHeight / 2);
  }

  /** Fit the width, down to the smallest legible scale. */
  fit() {
    if (this.cy.elements().empty() || this.scroll.clientWidth === 0) return;
    const box = this.cy.elements().boundingBox({ includeLabels: true });
    const scale = Math.max(SMALLEST, Math.min(1, (this.scroll.clientWidth - 2 * MARGIN) / box.w));
    this.container.style.width = `${Math.max(this.scroll.clientWidth, Math.ceil(box.w * scale) + 2 * MARGIN)}px`;
    this.container.style.height = `${Math.ceil(box.h * scale) + 2 * MARGIN}px`;
    this.cy.resize();
    this.cy.viewport({ zoom: scale, pan: { x: MARGIN - box.x1 * scale, y: MARGIN - box.y1 * scale } });
  }
}

function operation(step) {
  return step.parallelism > 1 ? `${step.operation} ×${step.parallelism}` : step.operation;
}

function style() {
  const text = { "font-family": "system-ui, sans-serif", color: colour("text") };
  const share = (name) => (node) => 0.05 + 0.27 * node.data(name);
  return [
    {
      selector: "node[step]",
      style: {
        ...text,
        shape: "round-rectangle",
        ...NODE,
        label: "data(label)",
        "font-size": 12,
        "line-height": 1.25,
        "text-wrap": "wrap",
        "text-valign": "center",
        "background-color": colour("card"),
        "border-width": 1,
        "border-color": colour("node-border"),
      },
    },
    { selector: "node[kind = 'source']", style: { "border-color": colour("accent"), "border-width": 2 } },
    { selector: "node[kind = 'sink']", style: { "border-style": "double", "border-width": 4 } },
    { selector: "node.selected", style: { "border-color": colour("accent"), "border-width": 3, "border-style": "solid" } },
    {
      selector: "node[task]",
      style: {
        ...text,
        shape: "round-rectangle",
        label: "data(label)",
        "font-size": 12,
        "text-valign": "top",
        "text-halign": "center",
        "text-margin-y": -3,
        padding: 12,
        "background-color": colour("busy"),
        "background-opacity": share("busy"),
        "border-width": (node) => (node.data("backpressured") > 0.05 ? 3 : 1),
        "border-color": (node) => colour(node.data("backpressured") > 0.05 ? "backpressured" : "border"),
      },
    },
    {
      selector: "edge",
      style: {
        ...text,
        "curve-style": "bezier",
        "target-arrow-shape": "triangle",
        "arrow-scale": 0.8,
        width: "data(width)",
        "line-color": colour("edge"),
        "target-arrow-color": colour("edge"),
        label: "data(label)",
        "text-wrap": "wrap",
        "line-height": 1.15,
        "font-size": 11,
        "text-background-color": colour("card"),
        "text-background-opacity": 0.85,
        "text-background-padding": 1,
      },
    },
    { selector: "edge.still", style: { "line-color": colour("border"), "target-arrow-color": colour("border"), color: colour("muted") } },
    { selector: "edge.side", style: { "line-style": "dashed" } },
  ];
}
