// The tables of single requests.

import {el, cell} from '/page/dom.js';
import {timeline} from '/page/draw.js';
import * as text from '/page/text.js';

const heads = ['At', 'Route', 'Request', 'Answer', 'What became of it', 'Took', 'Attempts'];

export function showRequests(lists) {
  for (const name of ['failed', 'slow', 'recovered']) fill(document.getElementById(name), lists[name], name === 'failed');
}

function fill(table, list, failed) {
  const caption = table.querySelector('caption');
  if (!list.length) {
    table.replaceChildren(caption, el('tbody', {role: 'rowgroup'}, el('tr', {role: 'row'}, el('td', {role: 'cell', class: 'word quiet'}, 'none'))));
    return;
  }
  table.replaceChildren(caption,
    el('thead', {role: 'rowgroup'}, el('tr', {role: 'row'}, ...heads.map((h) => el('th', {role: 'columnheader', scope: 'col', class: h === 'Took' || h === 'Answer' ? '' : 'word'}, h)))),
    el('tbody', {role: 'rowgroup'}, ...list.map((r) => row(r, failed))));
}

function word(label, ...children) {
  const node = cell(label, ...children);
  node.classList.add('word');
  return node;
}

// row is a request. One that failed without a failed attempt, such as one that was never
// sent, has its outcome explained instead.
function row(r, failed) {
  const said = r.attempts.map((a, i) => `${i + 1}: ${text.words(a.result)}${a.error ? ' (' + text.failure(a) + ')' : ''} after ${text.time(a.took)}`).join(', ');
  const left = r.count - r.attempts.length;
  const outcome = word('What became of it', text.words(r.outcome));
  outcome.title = r.why;
  const error = r.error || (failed ? r.why : '');
  if (error) outcome.append(el('span', {class: 'quiet error'}, error));
  return el('tr', {role: 'row'},
    word('At', text.clock(r.began_ms)), word('Route', r.route),
    el('td', {role: 'cell', class: 'word path', 'data-label': 'Request'}, el('b', {}, r.method), ' ', r.path, r.request_id ? el('code', {class: 'quiet id', title: 'X-Request-Id'}, r.request_id) : null),
    cell('Answer', r.code ? String(r.code) : 'none'), outcome, cell('Took', text.time(r.took)),
    el('td', {role: 'cell', class: 'chart', 'data-label': 'Attempts'}, timeline(r, said || 'no attempt'),
      left > 0 ? el('span', {class: 'quiet'}, ` and ${left} more`) : null));
}
