// The filters of the requests. The choice is in the URL's fragment: a reload or a link keeps it.

import {el} from '/page/dom.js';
import * as text from '/page/text.js';

const maxValue = 128; // characters of a fragment's value
const valueOf = {route: (r) => r.route, outcome: (r) => r.outcome, status: text.status};
const names = Object.keys(valueOf);
const chosen = {};
let changed = () => {};

const select = (name) => document.getElementById('filter-' + name);

export const isFiltered = () => names.some((name) => chosen[name]);

export function passes(request) {
  return names.every((name) => !chosen[name] || valueOf[name](request) === chosen[name]);
}

// offer lets one choose among the values of the requests; what is chosen stays, even if no
// request has it.
export function offer(requests) {
  for (const name of names) {
    const values = new Set(requests.map(valueOf[name]));
    if (chosen[name]) values.add(chosen[name]);
    fill(select(name), [...values].sort(), name === 'outcome' ? new Map(requests.map((r) => [r.outcome, r.outcome_words])) : new Map());
    select(name).value = chosen[name];
  }
}

function fill(node, values, words) {
  const now = [...node.options].slice(1).map((o) => o.value);
  if (now.length === values.length && values.every((v, i) => v === now[i])) return;
  node.replaceChildren(node.options[0], ...values.map((v) => el('option', {value: v}, words.get(v) ?? text.words(v))));
}

function readFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  for (const name of names) chosen[name] = (fragment.get(name) || '').slice(0, maxValue);
}

function writeFragment() {
  const fragment = new URLSearchParams(names.filter((name) => chosen[name]).map((name) => [name, chosen[name]]));
  history.replaceState(null, '', fragment.size ? '#' + fragment : location.pathname + location.search);
}

// startFilters calls onChange after each change of the choice.
export function startFilters(onChange) {
  changed = onChange;
  readFragment();
  for (const name of names) {
    select(name).addEventListener('change', () => {
      chosen[name] = select(name).value;
      writeFragment();
      changed();
    });
  }
  addEventListener('hashchange', () => {
    if (document.getElementById(location.hash.slice(1))) { // a link within the page, such as the one to the numbers
      writeFragment();
      return;
    }
    readFragment();
    changed();
  });
}
