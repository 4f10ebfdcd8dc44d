// Values as short text.

const NONE = "–";

/** A number with at most three significant digits and a unit of a thousand: 4.2, 812, 12.3k, 4.1M. */
export function compact(value) {
  if (value === null || value === undefined) return NONE;
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) {
      const scaled = value / (unit === "k" ? 1e3 : size);
      return `${scaled.toFixed(scaled < 100 ? 1 : 0)}${unit}`;
    }
  }
  if (value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value)) return value.toFixed(1);
  return Math.round(value).toLocaleString("en");
}

export function count(value) {
  return value === null || value === undefined ? NONE : value.toLocaleString("en");
}

export function percent(share) {
  return share === null || share === undefined ? NONE : `${Math.round(share * 100)} %`;
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${(value / size).toFixed(value < 100 * size ? 1 : 0)} ${unit}`;
  }
  return `${value} B`;
}

/** Milliseconds in the unit that fits: 0.4 ms, 12 ms, 3.4 s, 2.1 min, 5.0 h, 12 d. */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return NONE;
  const size = Math.abs(milliseconds);
  const units = [[86_400_000 * 365.25, "y"], [86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
  for (const [unit, name] of units) {
    if (size >= unit) {
      const value = milliseconds / unit;
      return `${value.toFixed(Math.abs(value) < 100 ? 1 : 0)} ${name}`;
    }
  }
  return `${size > 0 && size < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
}

/** The time of day of epoch milliseconds, in the time zone of the browser. */
export function clock(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return NONE;
  return new Date(milliseconds).toLocaleTimeString("en-GB");
}

/** Epoch milliseconds as ISO 8601 in UTC; the number if the calendar does not have it. */
export function instant(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return NONE;
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : date.toISOString();
}

/** Text with at most `length` characters. */
export function cut(text, length) {
  const characters = [...text];
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("")}…`;
}
