// Numbers as people read them. Times come in microseconds.

const thin = '\u202f';

export function count(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, thin);
}

export function rate(n, seconds) {
  if (!(seconds > 0)) return '–';
  const r = n / seconds;
  if (r === 0) return '0';
  return r >= 100 ? count(r) : r.toFixed(1);
}

export function share(n, of) {
  if (of === 0) return '–';
  const p = 100 * n / of;
  if (n === 0) return '0' + thin + '%';
  if (n === of) return '100' + thin + '%';
  if (p < 0.1) return '<0.1' + thin + '%';
  return Math.min(p, 99.9).toFixed(1) + thin + '%';
}

export function time(micros) {
  if (!micros) return '–';
  if (micros < 10e3) return (micros / 1e3).toFixed(1) + thin + 'ms';
  if (micros < 1e6) return Math.round(micros / 1e3) + thin + 'ms';
  if (micros < 100e6) return (micros / 1e6).toFixed(1) + thin + 's';
  return Math.round(micros / 1e6) + thin + 's';
}

// below is a quantile, of which only the upper edge of its bucket is known.
export function below(micros) {
  return (micros ? '<' : '') + time(micros);
}

export function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; bytes >= 1024 && i < units.length - 1; i++) bytes /= 1024;
  return (i === 0 || bytes >= 10 ? Math.round(bytes) : bytes.toFixed(1)) + thin + units[i];
}

export function span(ms) {
  const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (d > 0) return d + ' d ' + h % 24 + ' h';
  if (h > 0) return h + ' h ' + m % 60 + ' min';
  return m > 0 ? m + ' min ' + s % 60 + ' s' : s + ' s';
}

// failure is why a connection failed: where to, and the error's own words.
export function failure(f) {
  return f.address + ': ' + f.error;
}

// status is what the client of a request got.
export function status(request) {
  return request.code ? String(request.code) : 'none';
}

// longest is the longest wait in a queue.
export function longest(ms) {
  return 'longest ' + (ms < 1000 ? time(ms * 1000) : span(ms));
}

// queue is how many requests are queued, and for how long; nothing if none is.
export function queue(requests, longestMS) {
  return requests ? `${count(requests)} queued, ${longest(longestMS)}` : '';
}

export function words(label) {
  return label.replaceAll('_', ' ');
}
