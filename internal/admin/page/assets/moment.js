// Moments, in the time zone of the browser. Their titles have them in UTC, as the logs do.

import {el, setText, setAttribute} from '/page/dom.js';

const two = (n) => String(n).padStart(2, '0');

function clock(date) {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
}

function utc(date) {
  return date.toISOString().slice(0, 19).replace('T', ' ') + ' UTC';
}

// moment is a time of day, after its date if that is not today's.
export function moment(ms) {
  const date = new Date(ms), today = date.toDateString() === new Date().toDateString();
  const day = today ? '' : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} `;
  return el('time', {datetime: date.toISOString(), title: utc(date)}, day + clock(date));
}

// zone is the browser's time zone at a moment, such as Europe/Berlin (UTC+02:00).
function zone(date) {
  const minutes = -date.getTimezoneOffset(), off = Math.abs(minutes);
  const offset = `UTC${minutes < 0 ? '-' : '+'}${two(Math.floor(off / 60))}:${two(off % 60)}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name ? `${name} (${offset})` : offset;
}

// showNow writes when the page was right, and the time zone of all its times.
export function showNow(node, ms) {
  const date = new Date(ms);
  setText(node, `${clock(date)} ${zone(date)}`);
  setAttribute(node, 'datetime', date.toISOString());
  setAttribute(node, 'title', utc(date));
}
