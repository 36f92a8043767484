// Drawings. Each is made once and given new numbers as they come.

import {svg, setAttribute} from '/page/dom.js';

const round = (n) => Math.round(n * 10) / 10;

function frame(kind, width, height) {
  const fit = kind === 'stack' || kind === 'strip' ? 'none' : 'xMinYMid'; // those have no text to distort
  return svg('svg', {class: kind, preserveAspectRatio: fit, viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': 'nothing yet'});
}

// area is the outline between two rows of heights, in steps.
function area(low, high, width, y) {
  const w = width / high.length;
  let there = '', back = '';
  high.forEach((v, i) => { there += `${i ? 'L' : 'M'}${round(i * w)} ${y(v)}H${round((i + 1) * w)}`; });
  for (let i = low.length - 1; i >= 0; i--) back += `L${round((i + 1) * w)} ${y(low[i])}H${round(i * w)}`;
  return there + back + 'Z';
}

// line leaves out what is null.
function line(values, width, y) {
  const w = width / values.length, is = (v) => v !== null && v !== undefined;
  let d = '', pen = false;
  values.forEach((v, i) => {
    if (is(v)) d += `${pen ? 'L' : 'M'}${round((i + 0.5) * w)} ${y(v)}`;
    if (is(v) && !pen && !is(values[i + 1])) d += 'h0.1';
    pen = is(v);
  });
  return d || 'M0 0';
}

// stack shows rows of counts on top of each other.
export function stack(width, height, classes) {
  const node = frame('stack', width, height);
  const paths = classes.map((c) => svg('path', {class: c}));
  node.append(svg('line', {class: 'base', x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5}), ...paths);
  return {node, show(rows, label) {
    const sums = [rows[0].map(() => 0)];
    rows.forEach((row, k) => sums.push(row.map((v, i) => v + sums[k][i])));
    const top = Math.max(1, ...sums[rows.length]);
    const y = (v) => round((height - 1) * (1 - v / top));
    paths.forEach((p, k) => setAttribute(p, 'd', area(sums[k], sums[k + 1], width, y)));
    setAttribute(node, 'aria-label', label);
  }};
}

// lines shows rows of values over one scale, from 0 or, with log, in decades;
// null is no value.
export function lines(width, height, classes, log) {
  const node = frame('lines', width, height);
  const paths = classes.map((c) => svg('path', {class: c}));
  node.append(svg('line', {class: 'base', x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5}), ...paths);
  const scale = log ? Math.log10 : (v) => v;
  return {node, show(rows, label) {
    const all = rows.flat().filter((v) => v > 0);
    const top = scale(Math.max(1, ...all)), low = log ? scale(Math.min(...all, 1000)) - 0.1 : 0;
    const y = (v) => round(1.5 + (height - 3) * (1 - (scale(v) - low) / Math.max(top - low, 1e-9)));
    rows.forEach((row, k) => setAttribute(paths[k], 'd', line(row, width, y)));
    setAttribute(node, 'aria-label', label);
  }};
}

const breakerHeights = {closed: 0.3, slow_start: 0.55, half_open: 0.75, open: 1};

// strip shows the states of a breaker by colour and by height.
export function strip(width, height) {
  const node = frame('strip', width, height);
  return {node, show(states, label) {
    const w = width / Math.max(states.length, 1);
    const bars = [];
    for (let i = 0; i < states.length;) {
      let end = i + 1;
      while (end < states.length && states[end] === states[i]) end++;
      if (states[i]) {
        const h = round(height * breakerHeights[states[i]]);
        bars.push(svg('rect', {class: states[i], x: round(i * w), y: height - h, width: round((end - i) * w), height: h}));
      }
      i = end;
    }
    node.replaceChildren(...bars);
    setAttribute(node, 'aria-label', label);
  }};
}

// curve shows the waits before each retry: from the shortest to the longest,
// with a tick at the mean.
export function curve(waits, text, label) {
  const width = 280, row = 20, left = 22, right = 112, top = Math.max(1, ...waits.map((w) => w.max));
  const node = frame('curve', width, Math.max(row, waits.length * row));
  setAttribute(node, 'aria-label', label);
  const x = (ms) => round(left + (width - left - right) * ms / top);
  waits.forEach((w, i) => {
    const y = i * row;
    node.append(
      svg('text', {x: 0, y: y + 14}, String(i + 1)),
      svg('line', {class: 'base', x1: left, x2: width - right, y1: y + 10.5, y2: y + 10.5}),
      svg('rect', {class: 'range', x: x(w.min), y: y + 5, width: Math.max(1.5, x(w.max) - x(w.min)), height: 11}),
      svg('line', {class: 'mean', x1: x(w.mean), x2: x(w.mean), y1: y + 3, y2: y + 18}),
      svg('text', {x: width, y: y + 14, 'text-anchor': 'end'}, text(w)),
    );
  });
  return node;
}

// timeline shows the attempts of a request within its time.
export function timeline(request, label) {
  const width = 300, height = 20, all = Math.max(request.took, 1);
  const node = frame('timeline', width, height);
  setAttribute(node, 'aria-label', label);
  const x = (micros) => round(width * Math.min(micros / all, 1));
  node.append(svg('rect', {class: 'gap', x: 0, y: 8.5, width, height: 3, rx: 1.5}));
  let free = 0;
  request.attempts.forEach((a, i) => {
    const at = Math.min(x(a.began), width - 2), w = Math.max(2, x(a.began + a.took) - at);
    const next = i + 1 < request.attempts.length ? x(request.attempts[i + 1].began) : width;
    node.append(svg('rect', {class: {ok: 'ok', overtaken: 'overtaken'}[a.class] || 'failed', x: at, y: 2, width: w, height: 16, rx: 1}));
    const wide = 7 * a.result.length + 4;
    if (w >= wide) {
      node.append(svg('text', {class: 'within', x: at + 3, y: 14}, a.result));
      free = at + w;
    } else if (at + w + wide <= next && at + w >= free) {
      node.append(svg('text', {class: 'beside', x: at + w + 3, y: 14}, a.result));
      free = at + w + wide;
    }
  });
  return node;
}
