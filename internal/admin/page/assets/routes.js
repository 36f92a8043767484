// The table of routes.

import {el, cell, isWide, keyed, setText, setAttribute} from '/page/dom.js';
import {stack, lines, curve} from '/page/draw.js';
import * as text from '/page/text.js';

const known = new Map();
const columns = ['Requests', 'First attempt', 'Recovered', 'Failed', 'Retries', 'Clients median', 'Clients 99 %', 'Attempts median', 'Attempts 99 %'];

export function showRoutes(table, more, state) {
  keyed(known, table, state.routes.map((r) => r.name), make);
  for (const r of state.routes) known.get(r.name).show(r);
  const left = state.more_routes;
  setText(more, left ? `${left} more ${left === 1 ? 'route is' : 'routes are'} in use and not shown here; /metrics has all routes.`
    : state.routes.length ? '' : 'No request has come yet.');
  showUnused(state);
}

// showUnused names the routes that no request has taken: their match may be wrong.
function showUnused(state) {
  const named = state.unused.filter((r) => r.match).map((r) => `${r.name} (${r.match})`);
  setText(document.getElementById('unused'), named.length ? `No request has taken ${named.length === 1 ? 'the route' : 'these routes'} yet: ${named.join(', ')}. ` +
    '“retryproxy explain METHOD URL” prints which route a request takes, and why.' : '');
}

function make(name) {
  const id = 'route-' + known.size + '-' + Math.random().toString(36).slice(2, 8);
  const button = el('button', {type: 'button', class: 'more', 'aria-expanded': 'false', 'aria-controls': id}, el('span', {class: 'name'}, name));
  const upstream = el('span', {class: 'quiet'});
  const spark = stack(220, 44, ['ok', 'recovered', 'failed']);
  const [now, last] = ['now', '5 min'].map((word) => ({head: el('th', {role: 'rowheader', scope: 'row', class: 'when'}, word), cells: columns.map((c) => cell(c, '–'))}));
  const flight = cell('In flight', '–'), waiting = cell('Waiting', '');
  const detail = details(id);
  const node = el('tbody', {role: 'rowgroup'},
    el('tr', {role: 'row', class: 'first'},
      el('th', {role: 'rowheader', scope: 'rowgroup', rowspan: 2, class: 'word'}, button, upstream),
      el('td', {role: 'cell', rowspan: 2, class: 'chart'}, spark.node), now.head, ...now.cells, flight),
    el('tr', {role: 'row'}, last.head, ...last.cells, waiting),
    detail.node);
  let route = null;
  const open = (yes) => {
    setAttribute(button, 'aria-expanded', String(yes));
    detail.node.hidden = !yes;
    if (yes && route) detail.show(route);
  };
  button.addEventListener('click', () => open(detail.node.hidden));
  const show = (r) => {
    route = r;
    setText(upstream, r.rule.upstream);
    spark.show([r.history.first_attempt, r.history.recovered, r.history.failed],
      `last 5 minutes: ${r.last.first_attempt} at the first attempt, ${r.last.recovered} recovered, ${r.last.failed} failed`);
    const rates = [r.now.requests, r.now.first_attempt, r.now.recovered, r.now.failed, r.now.retries].map((n) => text.rate(n, r.now.seconds));
    rates[0] += '/s';
    fill(now.cells, rates, r.now);
    fill(last.cells, [text.count(r.last.requests), ...[r.last.first_attempt, r.last.recovered, r.last.failed].map((n) => text.share(n, r.last.requests)),
      text.count(r.last.retries)], r.last);
    setText(flight, text.count(r.in_flight));
    setText(waiting, r.waiting ? text.count(r.waiting) + ' wait' : '');
    if (!detail.node.hidden) detail.show(r);
  };
  open(known.size < 1 && isWide());
  return {node, show};
}

const quantiles = (s) => [
  [s.p50, s.timed, 'p50', 'request'], [s.p99, s.timed, 'p99', 'request'],
  [s.attempt_p50, s.timed_attempts, 'p50', 'attempt'], [s.attempt_p99, s.timed_attempts, 'p99', 'attempt'],
];
const enough = {p50: 10, p99: 100}; // fewer are said beside the quantile

function showQuantile(node, [micros, of, name, what]) {
  const few = of > 0 && of < enough[name] ? `of ${text.count(of)}` : '';
  const words = text.below(micros), plural = ` ${what}${of === 1 ? '' : 's'}`;
  if (node.dataset.shown === words + few) return;
  node.dataset.shown = words + few;
  node.replaceChildren(words, ...few ? [' ', el('span', {class: 'few'}, few, el('span', {}, plural))] : []);
  node.title = few && `${name === 'p50' ? 'median' : '99th percentile'} ${few}${plural}`;
}

// fill writes the cells and marks what needs attention, in words that stand
// there anyway and by colour.
function fill(cells, words, span) {
  words.forEach((w, i) => setText(cells[i], w));
  quantiles(span).forEach((q, i) => showQuantile(cells[words.length + i], q));
  setAttribute(cells[2], 'class', span.recovered ? 'recovered' : 'zero');
  setAttribute(cells[3], 'class', span.failed ? 'failed' : 'zero');
  setAttribute(cells[4], 'class', span.retries ? '' : 'zero');
}

function details(id) {
  const why = el('div'), retried = el('div'), waits = el('div'), slow = lines(280, 74, ['clients', 'attempts'], true);
  const scale = el('p', {class: 'quiet'});
  const part = (title, ...children) => el('div', {class: 'part'}, el('h3', {}, title), ...children);
  const node = el('tr', {role: 'row', id, class: 'details'}, el('td', {role: 'cell', colspan: 13},
    el('div', {class: 'parts'},
      part('Failures, by reason', why), part('Retries, by cause', retried),
      part('Slowest 1 % took at least, over 5 minutes', slow.node, el('p', {class: 'legend'}, el('span', {class: 'key clients'}), 'clients ', el('span', {class: 'key attempts'}), 'attempts'), scale),
      part('Backoff by the settings', waits))));
  let rule = '';
  return {node, show(r) {
    list(why, r.outcomes, 'Nothing failed in the last 5 minutes.');
    list(retried, r.retried, 'Nothing was retried in the last 5 minutes.');
    const all = [...r.history.p99, ...r.history.attempt_p99].filter((v) => v > 0);
    slow.show([r.history.p99, r.history.attempt_p99].map((row) => row.map((v) => v || null)), all.length ? `from ${text.below(Math.min(...all))} to ${text.below(Math.max(...all))}` : 'nothing measured');
    setText(scale, all.length ? `${text.below(Math.min(...all))} to ${text.below(Math.max(...all))}, logarithmic` : 'nothing measured yet');
    if (rule !== (rule = JSON.stringify(r.rule))) waits.replaceChildren(...settings(r.rule));
  }};
}

// list shows counts with a bar each, the largest as wide as there is room.
function list(node, counts, none) {
  const items = counts.length ? counts.map((c) => `${c.name} ${c.count}`).join() : none;
  if (node.dataset.shown === items) return;
  node.dataset.shown = items;
  if (!counts.length) {
    node.replaceChildren(el('p', {class: 'quiet'}, none));
    return;
  }
  const top = Math.max(...counts.map((c) => c.count));
  node.replaceChildren(el('dl', {class: 'counts'}, ...[...counts].sort((a, b) => b.count - a.count).map((c) => el('div', {title: c.why},
    el('dt', {}, c.words), el('dd', {}, text.count(c.count)),
    el('dd', {class: 'bar'}, el('meter', {min: 0, max: top, value: c.count, 'aria-hidden': 'true', class: c.kind || ''}))))));
}

function settings(rule) {
  const limit = (ms) => ms ? text.time(ms * 1000) : 'no limit';
  const words = (rule.dry_run ? 'dry run: no retry is made; otherwise ' : '') + `${rule.backoff}, at most ${rule.max_retries} ${rule.max_retries === 1 ? 'retry' : 'retries'} beside probes; ` +
    `request ${limit(rule.request_timeout_ms)}, attempt ${limit(rule.attempt_timeout_ms)}`;
  const range = (w) => w.min === w.max ? wait(w.max) : `${wait(w.min)} to ${wait(w.max)}`;
  if (!rule.curve.length) return [el('p', {class: 'quiet'}, words)];
  const said = rule.curve.map((w, i) => `retry ${i + 1} after ${range(w)}, ${wait(w.mean)} on average`).join('; ');
  return [curve(rule.curve, range, said), el('p', {class: 'quiet'}, words)];
}

const wait = (ms) => ms ? text.time(ms * 1000) : '0';
