// What is to be seen in the tab already: which process this is, and how it is.

import {setText, setAttribute} from '/page/dom.js';
import * as text from '/page/text.js';

const by = (id) => document.getElementById(id);

export function showTitle(state) {
  const host = state.process.host;
  const queued = state.upstreams.reduce((sum, u) => sum + u.waiting, 0);
  const down = state.upstreams.filter((u) => u.breaker === 'open' || u.breaker === 'half_open').length;
  const parts = [];
  if (down) parts.push(`${down} down`);
  if (queued) parts.push(`${text.count(queued)} queued`);
  if (state.process.draining) parts.push('draining');
  const title = [parts.length ? '■ ' + parts.join(', ') : '● ok', host, 'retryproxy ' + state.version].filter(Boolean).join(' · ');
  if (document.title !== title) document.title = title;
  setAttribute(by('icon'), 'href', down ? '/page/icon-down.svg' : '/page/icon.svg');
  setText(by('host'), host);
  setText(by('queued'), queued ? `${text.count(queued)} queued` : '');
  by('queued').hidden = !queued;
}
