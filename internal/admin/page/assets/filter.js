// Which requests are shown. The choice is kept behind # in the address, so that it can be shared.

import {el} from '/page/dom.js';
import * as text from '/page/text.js';

const inputs = Object.fromEntries(['route', 'outcome', 'status'].map((name) => [name, document.getElementById('filter-' + name)]));

// matches reports whether a request is shown.
export function matches(r) {
  return (!inputs.route.value || r.route === inputs.route.value) && (!inputs.outcome.value || r.outcome === inputs.outcome.value) &&
    String(r.code).startsWith(inputs.status.value.trim());
}

// offer adds what the requests have to what can be chosen. What was chosen stays, even if no request has it now.
export function offer(requests) {
  for (const name of ['route', 'outcome']) {
    const known = new Set([...inputs[name].options].map((o) => o.value));
    for (const value of new Set(requests.map((r) => r[name]))) {
      if (!known.has(value)) add(name, value);
    }
  }
}

function add(name, value) {
  inputs[name].append(el('option', {value}, name === 'outcome' ? text.words(value) : value));
}

// listen calls changed whenever the choice changes.
export function listen(changed) {
  for (const input of Object.values(inputs)) {
    input.addEventListener('input', () => { remember(); changed(); });
  }
  addEventListener('hashchange', () => { recall(); changed(); });
}

function remember() {
  const chosen = new URLSearchParams(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]).filter(([, value]) => value));
  history.replaceState(null, '', chosen.size ? '#' + chosen : location.pathname);
}

function recall() {
  const chosen = new URLSearchParams(location.hash.slice(1));
  for (const [name, input] of Object.entries(inputs)) {
    const value = chosen.get(name) || '';
    if (input.options && ![...input.options].some((o) => o.value === value)) add(name, value);
    input.value = value;
  }
}

recall();
