// The tables of single requests.

import {el, cell, setText} from '/page/dom.js';
import {timeline} from '/page/draw.js';
import * as filter from '/page/filter.js';
import * as text from '/page/text.js';

const heads = ['At', 'Route', 'Request', 'Answer', 'What became of it', 'Took', 'Attempts'];
const names = ['failed', 'slow', 'recovered'];
const first = 4; // shown of a list on a narrow screen

let lists = null;

export function showRequests(now) {
  lists = now;
  filter.offer(names.flatMap((name) => lists[name]));
  show();
}

function show() {
  if (!lists) return;
  for (const name of names) fill(document.getElementById(name), lists[name]);
}

filter.listen(show);
setText(document.getElementById('zone'), 'Times: ' + text.zone());
if (matchMedia('(max-width: 860px)').matches) {
  for (const name of ['slow', 'recovered']) document.getElementById(name).parentNode.open = false;
}

function fill(table, all) {
  const caption = table.querySelector('caption'), list = all.filter(filter.matches);
  if (!list.length) {
    const none = all.length ? `none of ${all.length} matches` : 'none';
    table.replaceChildren(caption, el('tbody', {role: 'rowgroup'}, el('tr', {role: 'row'}, el('td', {role: 'cell', class: 'word quiet'}, none))));
    return;
  }
  const rest = list.slice(first).map(row);
  for (const r of rest) r.classList.add('beyond');
  table.replaceChildren(caption,
    el('thead', {role: 'rowgroup'}, el('tr', {role: 'row'}, ...heads.map((h) => el('th', {role: 'columnheader', scope: 'col', class: h === 'Took' || h === 'Answer' ? '' : 'word'}, h)))),
    el('tbody', {role: 'rowgroup'}, ...list.slice(0, first).map(row), ...rest, rest.length ? more(table, rest.length) : null));
}

// more is the row with a button that shows the rest on a narrow screen.
function more(table, count) {
  const button = el('button', {type: 'button'}, `${count} more`);
  button.addEventListener('click', () => table.classList.add('all'));
  return el('tr', {role: 'row', class: 'rest'}, el('td', {role: 'cell', colspan: heads.length}, button));
}

function word(label, ...children) {
  const node = cell(label, ...children);
  node.classList.add('word');
  return node;
}

function row(r) {
  const said = r.attempts.map((a, i) => `${i + 1}: ${text.words(a.result)}${a.error ? ' (' + text.failure(a) + ')' : ''} after ${text.time(a.took)}`).join(', ');
  const left = r.count - r.attempts.length;
  const outcome = word('What became of it', text.words(r.outcome));
  outcome.title = r.why;
  const failed = r.attempts.filter((a) => a.error).pop();
  if (failed) outcome.append(el('span', {class: 'quiet'}, ' ' + text.failure(failed)));
  const at = word('At', text.clock(r.began_ms));
  at.title = new Date(r.began_ms).toISOString();
  return el('tr', {role: 'row'},
    at, word('Route', r.route),
    el('td', {role: 'cell', class: 'word path', 'data-label': 'Request'}, el('b', {}, r.method), ' ', r.path, r.request_id ? el('span', {class: 'quiet id'}, r.request_id) : null),
    cell('Answer', r.code ? String(r.code) : 'none'), outcome, cell('Took', text.time(r.took)),
    el('td', {role: 'cell', class: 'chart', 'data-label': 'Attempts'}, timeline(r, said || 'no attempt'),
      left > 0 ? el('span', {class: 'quiet'}, ` and ${left} more`) : null));
}
