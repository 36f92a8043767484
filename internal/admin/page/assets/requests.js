// The tables of single requests.

import {el, cell, isWide, keyed, setText, unfold} from '/page/dom.js';
import {timeline} from '/page/draw.js';
import {isFiltered, offer, passes, startFilters} from '/page/filters.js';
import {moment} from '/page/moment.js';
import * as text from '/page/text.js';

const heads = ['At', 'Route', 'Request', 'Status', 'Outcome', 'Took', 'Attempts'];
const shownNarrow = 5; // rows on a narrow screen, as in style.css
const right = ['Status', 'Took'];
const tables = ['failed', 'slow', 'recovered'].map(makeTable);
let lists = {failed: [], slow: [], recovered: []};

export function showRequests(now) {
  lists = now;
  show();
}

function show() {
  offer(tables.flatMap((t) => lists[t.name]));
  for (const t of tables) t.show(lists[t.name]);
}

function makeTable(name) {
  const table = document.getElementById(name), count = document.getElementById(name + '-count');
  const rest = document.querySelector(`#${name}-list > .rest`);
  const body = el('tbody', {role: 'rowgroup'}), known = new Map();
  table.append(el('thead', {role: 'rowgroup'}, el('tr', {role: 'row'},
    ...heads.map((h) => el('th', {role: 'columnheader', scope: 'col', class: right.includes(h) ? '' : 'word'}, h)))), body);
  return {name, show(list) {
    const rows = keys(list.filter(passes));
    keyed(known, body, [...rows.keys()], (key) => ({node: row(rows.get(key), name === 'failed')}));
    setText(count, !list.length ? 'none' : isFiltered() ? `${rows.size} of ${list.length}` : String(list.length));
    table.hidden = !rows.size;
    rest.hidden = rows.size <= shownNarrow;
    setText(rest.firstElementChild, `All ${rows.size}`);
  }};
}

// keys names each request, so that its row stays the same while others come and go. Clients
// choose ids, so two requests may be alike in everything.
function keys(list) {
  const all = new Map();
  for (const r of list) {
    const name = [r.began_ms, r.took, r.route, r.request_id, r.path].join(' ');
    let key = name;
    for (let i = 2; all.has(key); i++) key = name + ' ' + i;
    all.set(key, r);
  }
  return all;
}

function word(label, ...children) {
  const node = cell(label, ...children);
  node.classList.add('word');
  return node;
}

// row is a request. One that failed without a failed attempt, such as one that was never
// sent, has its outcome explained instead.
function row(r, failed) {
  const outcome = word('Outcome', r.words);
  outcome.title = r.why;
  const error = r.error || (failed ? r.why : '');
  if (error) outcome.append(el('span', {class: 'quiet error'}, error));
  outcome.append(unfold(`${r.count} ${r.count === 1 ? 'attempt' : 'attempts'}`));
  return el('tr', {role: 'row'},
    word('At', moment(r.began_ms)), word('Route', r.route),
    el('td', {role: 'cell', class: 'word path', 'data-label': 'Request'}, el('b', {}, r.method), ' ', r.path,
      r.request_id ? el('code', {class: 'quiet id', title: 'X-Request-Id'}, r.request_id) : null),
    cell('Status', text.status(r)), outcome, cell('Took', text.time(r.took)), attempts(r));
}

function attempts(r) {
  const said = r.attempts.map((a, i) => `${i + 1}: ${text.words(a.result)}${a.error ? ' (' + text.failure(a) + ')' : ''} after ${text.time(a.took)}`).join(', ');
  const left = r.count - r.attempts.length;
  return el('td', {role: 'cell', class: 'chart', 'data-label': 'Attempts'}, timeline(r, said || 'no attempt'),
    left > 0 ? el('span', {class: 'quiet'}, ` and ${left} more`) : null);
}

for (const name of ['slow', 'recovered']) document.getElementById(name + '-list').open = isWide();
startFilters(show);
