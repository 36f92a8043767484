// Elements. All that comes from outside goes in as text, never as markup.

const svgNS = 'http://www.w3.org/2000/svg';

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child); // a string becomes a text node
  }
  return node;
}

export function el(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return build(document.createElementNS(svgNS, tag), attributes, children);
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// setWords writes text with a remark in small letters after it, which may be empty.
export function setWords(node, text, remark) {
  if (node.dataset.shown === text + remark) return;
  node.dataset.shown = text + remark;
  node.replaceChildren(text, ...remark ? [' ', el('span', {class: 'few'}, remark)] : []);
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// cell is a table's, with the label that it has where there is no table head.
export function cell(label, ...children) {
  return el('td', {role: 'cell', 'data-label': label}, ...children);
}

// isWide reports whether there is room for all at once. The style has the same limit.
export const isWide = () => matchMedia('(min-width: 861px)').matches;

// unfold is what a narrow screen has to show the rest of a row; see style.css.
export function unfold(words) {
  return el('details', {class: 'unfold'}, el('summary', {}, words));
}

// keyed gives the item of each key, made when it is new, in the order of keys,
// and removes the elements of those that are gone.
export function keyed(known, parent, keys, make) {
  const now = new Set(keys);
  for (const [key, item] of known) {
    if (!now.has(key)) {
      item.node.remove();
      known.delete(key);
    }
  }
  let after = parent.querySelector(':scope > thead');
  for (const key of keys) {
    if (!known.has(key)) known.set(key, make(key));
    const node = known.get(key).node;
    const place = after ? after.nextSibling : parent.firstChild;
    if (place !== node) parent.insertBefore(node, place);
    after = node;
  }
}
