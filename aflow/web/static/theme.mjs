// Colours of the style sheet, for what is drawn on a canvas.

const SCHEME = matchMedia("(prefers-color-scheme: dark)");

/** Return the value of a variable of the style sheet. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Call `redraw` whenever the colours change. */
export function onThemeChange(redraw) {
  SCHEME.addEventListener("change", redraw);
}
