// Elements from values. Text is always set as text, never parsed as HTML.

/** Return the element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Return a new element; `properties` are its class, text, and attributes. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Set the text of a node if it differs, so that unchanged text stays selected and is not announced again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Make the children of `parent` those of `items`, by key: existing ones are kept and updated. */
export function reconcile(parent, items, { key, make, update }) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = null;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    update(child, item);
    const place = before === null ? parent.firstChild : before.nextSibling;
    if (place !== child) parent.insertBefore(child, place);
    before = child;
  }
  for (const child of known.values()) child.remove();
}

/** Show the content that `render` returns, unless `state` is the one that it was rendered for. */
export function replaceIfChanged(parent, state, render) {
  const mark = JSON.stringify(state);
  if (parent.dataset.state === mark) return;
  parent.dataset.state = mark;
  parent.replaceChildren(...render());
}
