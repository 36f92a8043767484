// The table of upstreams.

import {el, cell, keyed, setText, setAttribute} from '/page/dom.js';
import {strip, lines} from '/page/draw.js';
import * as text from '/page/text.js';

const known = new Map();
const marks = {open: '●', ramp: '◐', half_open: '◔', closed: '■'};

export function showUpstreams(body, upstreams) {
  keyed(known, body, upstreams.map((u) => u.name), make);
  for (const u of upstreams) known.get(u.name).show(u);
}

function make(name) {
  const gate = el('strong', {class: 'gate'}), why = el('span', {class: 'quiet'}), probing = el('span', {class: 'quiet'}), failure = el('span', {class: 'quiet'});
  const over = strip(160, 24), flight = lines(160, 28, ['limit', 'attempts']), budget = lines(110, 28, ['attempts']);
  const cells = ['In flight', 'Limit', 'Waiting', 'Budget left', 'Connections'].map((c) => cell(c, '–'));
  const chart = (label, node) => el('td', {role: 'cell', class: 'chart', 'data-label': label}, node);
  const node = el('tr', {role: 'row'},
    el('th', {role: 'rowheader', scope: 'row', class: 'word name'}, name),
    el('td', {role: 'cell', class: 'word', 'data-label': 'Gate'}, gate, why, probing, failure),
    chart('Gate, last 5 minutes', over.node), cells[0], cells[1], chart('In flight and limit', flight.node), cells[2], cells[3], chart('Budget', budget.node), cells[4]);
  return {node, show(u) {
    const h = u.history, states = h.gate || [];
    setText(gate, `${marks[u.gate]} ${text.words(u.gate)}`);
    setAttribute(gate, 'class', 'gate ' + u.gate);
    setText(why, u.gate === 'open' ? '' : u.gate_why);
    setText(probing, u.closed_by || '');
    setText(failure, u.last_failure ? `Last failed connection ${text.clock(u.last_failure.at_ms)}: ${text.failure(u.last_failure)}` : '');
    over.show(states, gateWords(states));
    const seen = (row, none) => (row || []).map((v, i) => states[i] && v !== none ? v : null);
    flight.show([seen(h.limit, 0), seen(h.in_flight)], `at most ${Math.max(0, ...(h.in_flight || []))} in flight in the last 5 minutes`);
    budget.show([seen(h.budget)], `between ${Math.round(Math.min(...(h.budget || [0])))} and ${Math.round(Math.max(...(h.budget || [0])))} retries left`);
    const throttle = u.has_throttle && u.throttle > 0 ? `, ${text.share(u.throttle, 1)} turned away` : '';
    [text.count(u.in_flight) + (u.abandoned ? ` (${u.abandoned} deserted)` : ''), u.limit ? text.count(u.limit) : 'none', text.count(u.waiting) + throttle,
      u.has_budget ? text.count(Math.floor(u.budget)) : 'no budget', `${u.active} busy, ${u.idle} idle`].forEach((w, i) => setText(cells[i], w));
    setAttribute(cells[1], 'class', u.limit ? 'rescued' : 'zero');
    setAttribute(cells[2], 'class', u.waiting ? 'rescued' : 'zero');
    setAttribute(cells[3], 'class', u.has_budget && u.budget < 1 ? 'failed' : '');
  }};
}

// gateWords is the strip in words: seconds by state.
function gateWords(states) {
  const looks = states.filter(Boolean);
  if (!looks.length) return 'not looked at yet';
  return ['closed', 'half_open', 'ramp', 'open'].map((s) => [s, looks.filter((l) => l === s).length]).filter(([, n]) => n > 0)
    .map(([s, n]) => `${text.words(s)} ${text.share(n, looks.length)} of the time`).join(', ');
}
