// The state in a word: in the header, in the tab's title and in its icon.

import {setText, setAttribute} from '/page/dom.js';
import * as text from '/page/text.js';

const healths = {
  healthy: {words: 'healthy', chip: 'good', icon: '/page/icon-healthy.svg'},
  queueing: {words: 'queueing', chip: 'warn', icon: '/page/icon-queueing.svg'},
  recovering: {words: 'slow start', chip: 'warn', icon: '/page/icon-queueing.svg'},
  open: {words: 'circuit breaker open', chip: 'bad', icon: '/page/icon-open.svg'},
};
const by = (id) => document.getElementById(id);
const alarming = 1000; // milliseconds in a queue; a concurrency limit makes requests wait a little all the time
let identity = 'retryproxy'; // host and version, once they are known

function healthOf(state) {
  const some = (test) => state.upstreams.some(test);
  if (some((u) => u.breaker === 'open' || u.breaker === 'half_open')) return healths.open;
  if (state.queued.longest_ms >= alarming) return healths.queueing;
  return some((u) => u.breaker === 'slow_start') ? healths.recovering : healths.healthy;
}

// The first words of a title are what a narrow tab shows.
function showTab(words, icon) {
  const title = `${words} · ${identity}`;
  if (document.title !== title) document.title = title;
  setAttribute(by('icon'), 'href', icon);
}

export function showHealth(state) {
  identity = [state.host, 'retryproxy ' + state.version].filter(Boolean).join(' · ');
  const health = healthOf(state);
  const queue = text.queue(state.queued.requests, state.queued.longest_ms);
  setText(by('host'), state.host);
  setText(by('queue'), queue);
  by('queue').hidden = !queue;
  setText(by('health'), health.words);
  setAttribute(by('health'), 'class', 'chip ' + health.chip);
  showTab(queue && health !== healths.healthy ? `${health.words}, ${queue}` : health.words, health.icon);
}

// showStale is for a page that gets no news: its title must not say what was.
export function showStale(words) {
  by('queue').hidden = true;
  setText(by('health'), 'unknown');
  setAttribute(by('health'), 'class', 'chip wait');
  showTab(words, '/page/icon.svg');
}
