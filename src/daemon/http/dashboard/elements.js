// elements.js: making and updating elements. Text of the API enters the page here and nowhere else, always as
// text. An update changes only what differs, so that a refresh moves nothing and keeps focus and selection.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);  // strings become text nodes
  return node;
}

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

export function show(node, yes) {
  if (node.hidden === yes) node.hidden = !yes;
}

/** The width of the filled part of a bar, in percent. */
export function setFill(bar, value, kind) {
  const fill = bar.querySelector(".fill");
  const width = `${value.toFixed(1)}%`;
  if (fill.style.width !== width) fill.style.width = width;
  if (kind !== undefined) setClass(fill, `fill ${kind}`);
}

/**
 * Makes the children of `parent` those of `items`, in their order. A child is made once for each key, and
 * updated for each call.
 */
export function sync(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = name;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update(child, item);
  }
  for (const gone of known.values()) gone.remove();
}

/** A row of `columns` cells; a column is a class, "" for none. The first cell heads the row. */
export function row(columns) {
  return element("tr", {}, ...columns.map((name, i) => {
    const cell = i === 0 ? element("th", { scope: "row" }) : element("td");
    if (name) cell.className = name;
    return cell;
  }));
}

export function setCells(tr, texts) {
  texts.forEach((text, i) => {
    if (text !== null) setText(tr.children[i], text);
  });
}
