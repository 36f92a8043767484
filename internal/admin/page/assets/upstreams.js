// The table of upstreams.

import {el, cell, keyed, unfold, setText, setWords, setAttribute} from '/page/dom.js';
import {strip, lines} from '/page/draw.js';
import {moment} from '/page/moment.js';
import * as text from '/page/text.js';

const known = new Map();
const marks = {closed: '●', slow_start: '◐', half_open: '◔', open: '■'};

export function showUpstreams(body, upstreams) {
  keyed(known, body, upstreams.map((u) => u.name), make);
  for (const u of upstreams) known.get(u.name).show(u);
}

function make(name) {
  const breaker = el('strong', {class: 'breaker'}), why = el('span', {class: 'quiet'}), probing = el('span', {class: 'quiet'}), failure = el('span', {class: 'quiet'});
  const over = strip(160, 24), flight = lines(160, 28, ['limit', 'attempts']), budget = lines(110, 28, ['attempts']);
  const cells = ['In flight', 'Limit', 'Queued', 'Budget left', 'Connections'].map((c) => cell(c, '–'));
  const chart = (label, node) => el('td', {role: 'cell', class: 'chart', 'data-label': label}, node);
  const node = el('tr', {role: 'row'},
    el('th', {role: 'rowheader', scope: 'row', class: 'word name'}, name, unfold('All numbers')),
    el('td', {role: 'cell', class: 'word', 'data-label': 'Breaker'}, breaker, why, probing, failure),
    chart('Breaker, last 5 minutes', over.node), cells[0], cells[1], chart('In flight and limit', flight.node), cells[2], cells[3], chart('Budget', budget.node), cells[4]);
  let shownFailure = 'null';
  return {node, show(u) {
    const h = u.history, states = h.breaker || [];
    setText(breaker, `${marks[u.breaker]} ${text.words(u.breaker)}`);
    setAttribute(breaker, 'class', 'breaker ' + u.breaker);
    setText(why, u.breaker === 'closed' ? '' : u.breaker_why);
    setText(probing, u.opened_by ? 'Why it opened: ' + u.opened_by : '');
    const last = JSON.stringify(u.last_failure || null);
    if (shownFailure !== last) failure.replaceChildren(...failureWords(u.last_failure));
    shownFailure = last;
    over.show(states, breakerWords(states));
    const seen = (row, none) => (row || []).map((v, i) => states[i] && v !== none ? v : null);
    flight.show([seen(h.concurrency_limit, 0), seen(h.in_flight)], `at most ${Math.max(0, ...(h.in_flight || []))} in flight in the last 5 minutes`);
    budget.show([seen(h.budget)], `between ${Math.round(Math.min(...(h.budget || [0])))} and ${Math.round(Math.max(...(h.budget || [0])))} retries left`);
    setText(cells[0], text.count(u.in_flight) + (u.abandoned ? ` (${u.abandoned} abandoned)` : ''));
    setText(cells[1], u.concurrency_limit ? text.count(u.concurrency_limit) : 'none');
    setWords(cells[2], text.count(u.waiting), u.waiting ? text.longest(u.longest_wait_ms) : '');
    setText(cells[3], u.has_budget ? text.count(Math.floor(u.budget)) : 'no budget');
    setText(cells[4], `${u.active} busy, ${u.idle} idle`);
    setAttribute(cells[1], 'class', u.concurrency_limit ? 'recovered' : 'zero');
    setAttribute(cells[2], 'class', u.waiting ? 'recovered' : 'zero');
    setAttribute(cells[3], 'class', u.has_budget && u.budget < 1 ? 'failed' : '');
  }};
}

function failureWords(f) {
  return f ? ['Last failed connection ', moment(f.at_ms), ': ' + text.failure(f)] : [];
}

// breakerWords is the strip in words: seconds by state.
function breakerWords(states) {
  const looks = states.filter(Boolean);
  if (!looks.length) return 'no data yet';
  return ['open', 'half_open', 'slow_start', 'closed'].map((s) => [s, looks.filter((l) => l === s).length]).filter(([, n]) => n > 0)
    .map(([s, n]) => `${text.words(s)} ${text.share(n, looks.length)} of the time`).join(', ');
}
