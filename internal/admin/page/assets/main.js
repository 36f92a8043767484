// The page: it listens to /page/events and shows what comes.

import {el, setText, setAttribute} from '/page/dom.js';
import {showRoutes} from '/page/routes.js';
import {showUpstreams} from '/page/upstreams.js';
import {showRequests} from '/page/requests.js';
import {showHealth, showStale} from '/page/health.js';
import {showNow} from '/page/moment.js';
import * as text from '/page/text.js';

const by = (id) => document.getElementById(id);
const told = new Map(); // what the notices say, by what they are about
const glanceEvery = 10000; // milliseconds, in the background
let source = null, paused = false, glances = 0;

function showState(state) {
  const p = state.process;
  showHealth(state);
  showNow(by('now'), state.at_ms);
  setText(by('about'), `version ${state.version}, ${p.position}, up ${text.span(state.uptime_ms)} · ${text.count(p.connections)} client connections · ` +
    `retry buffer ${text.size(p.retry_buffer_bytes)} of ${text.size(p.retry_buffer_limit_bytes)}` + tokens(p.tokens));
  showRoutes(by('routes'), by('more-routes'), state);
  showUpstreams(by('upstreams').tBodies[0], state.upstreams);
  showNotices(state);
}

// tokens says what language models used in the last minute.
function tokens(t) {
  if (!t || !t.used && !t.limit) return '';
  return ` · ${text.count(t.used)}${t.limit ? ' of ' + text.count(t.limit) : ''} tokens a minute`;
}

// showNotices says at the top what is not as usual, and tells those who cannot
// see it when that changes.
function showNotices(state) {
  const now = new Map();
  if (state.process.draining) now.set('draining', 'retryproxy is shutting down: the process ends when no request is in flight.');
  if (state.process.retry_percent < 100) now.set('percent', `Only ${state.process.retry_percent} % of the retries are made (POST /retry-percent).`);
  for (const u of state.upstreams) {
    if (u.breaker === 'slow_start') now.set(u.name, `Circuit breaker in slow start: ${u.name} is back and gets more requests step by step.`);
    else if (u.breaker !== 'closed') now.set(u.name, `Circuit breaker open: ${u.name} is down; requests are queued or refused until a probe succeeds.`);
  }
  const news = [...now].filter(([about, words]) => told.get(about) !== words).map(([, words]) => words);
  for (const about of told.keys()) {
    if (!now.has(about)) news.push(about === 'percent' ? 'All retries are made again.' : `Circuit breaker closed again: ${about}.`);
  }
  if (!news.length) return;
  told.clear();
  for (const [about, words] of now) told.set(about, words);
  setText(by('news'), news.join(' '));
  by('notices').replaceChildren(...[...now.values()].map((words) => el('p', {class: 'notice'}, words)));
}

function showLink(words, kind) {
  setText(by('link'), words);
  setAttribute(by('link'), 'class', 'chip ' + kind);
}

function connect() {
  if (source || paused || document.hidden) return;
  source = new EventSource('/page/events');
  source.addEventListener('state', (e) => { showLink('live', 'good'); showState(JSON.parse(e.data)); });
  source.addEventListener('requests', (e) => showRequests(JSON.parse(e.data)));
  source.addEventListener('error', () => {
    showLink('not connected', 'bad');
    showStale('not connected');
    if (source && source.readyState === EventSource.CLOSED) { // refused: the browser does not try again by itself
      disconnect();
      setTimeout(connect, 5000);
    }
  });
}

function disconnect() {
  if (source) source.close();
  source = null;
}

by('pause').addEventListener('click', () => {
  paused = !paused;
  setAttribute(by('pause'), 'aria-pressed', String(paused));
  setText(by('pause'), paused ? 'Continue' : 'Pause');
  if (paused) {
    disconnect();
    showLink('paused', 'wait');
    showStale('paused');
  } else {
    connect();
  }
});

// glance keeps title and icon true while the page is in the background.
async function glance() {
  if (paused) return;
  try {
    const response = await fetch('/page/state.json');
    if (!response.ok) throw new Error(response.statusText);
    const {state} = await response.json();
    if (!paused) showHealth(state);
  } catch {
    showStale('not connected');
  }
}

// A page in the background holds no stream open.
function changeVisibility() {
  clearInterval(glances);
  if (document.hidden) {
    disconnect();
    glances = setInterval(glance, glanceEvery);
  } else {
    connect();
  }
}

document.addEventListener('visibilitychange', changeVisibility);
changeVisibility();
