// Draws the lanes: a tick for each token, stalls, prompts in prefill.

import { canvas, colours, hatch, paint, shorten, text } from './brush.js';
import { firstAfter, known, present } from './known.js';
import { arrange, crowded, isLong, prefillRows, rows } from './rows.js';
import { pausedAt, span } from './view.js';
import { clock, count, duration } from './words.js';

export function draw() {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  paint.setTransform(scale, 0, 0, scale, 0, 0);
  paint.clearRect(0, 0, width, height);
  const end = pausedAt || present();
  const gutter = width < 500 ? 64 : 118;
  const view = { start: end - span, end, left: gutter, right: width - 8, gutter };
  view.x = (t) => view.left + ((t - view.start) / span) * (view.right - view.left);
  const axis = height - 18;
  drawAxis(view, axis);
  let top = 0;
  view.ms = (pixels) => (pixels / (view.right - view.left)) * span;
  const { shown, hidden } = prefillRows(view);
  const prefillHeight = 17;
  const lines = Math.max(2, 1 + Math.max(-1, ...shown.map((each) => each.row)));
  drawPrefills(view, top, prefillHeight, shown, hidden);
  top += lines * prefillHeight + 8;
  const most = Math.max(4, Math.floor((axis - top - 30) / 11));
  arrange(most, end);
  if (crowded) {
    drawCrowd(view, top, 26);
    top += 32;
  }
  drawUnseen(view, axis);
  drawBands(view, shown, top, axis);
  const rowHeight = Math.min(48, Math.max(11, (axis - top) / Math.max(rows.length, 4)));
  const fitting = Math.floor((axis - top) / rowHeight + 0.01);
  rows.slice(0, fitting).forEach((row, index) => drawRow(view, top + index * rowHeight, rowHeight, row));
  if (!rows.length) drawNothing(view, top, axis);
  view.shown = Math.min(rows.length, fitting);
  return view;
}

function drawAxis(view, y) {
  const step = [1000, 2000, 5000, 10000].find((each) => (each / span) * (view.right - view.left) >= 56) ?? span;
  for (let back = 0; back <= span; back += step) {
    const x = Math.round(view.right - (back / span) * (view.right - view.left));
    paint.fillStyle = colours.line;
    paint.fillRect(x, 0, 1, y);
    const words = back ? `−${back / 1000} s` : pausedAt || known.recording ? clock(view.end) : 'now';
    text(words, back ? x : view.right, y + 10, colours.soft, '11px system-ui, sans-serif', back ? 'center' : 'right');
  }
}

function drawPrefills(view, top, height, shown, hidden) {
  text(hidden ? `in prefill +${hidden}` : 'in prefill', 0, top + height / 2, colours.soft);
  for (const each of shown) {
    const y = top + each.row * height + 2;
    const from = Math.max(view.x(each.since), view.left);
    const to = Math.max(view.x(Math.min(each.until || view.end, view.end)), from + 2);
    if (each.streaming) drawWaiting(from, to, y, height - 4);
    else {
      // An answer that does not stream shows no first token: when its prompt was read is inferred, the rest is a line.
      paint.fillStyle = colours.prefill;
      paint.fillRect(from, y + height / 2 - 3, to - from, 2);
    }
    paint.fillStyle = colours.prefill;
    for (const [a, b] of servedSpans(view, each)) paint.fillRect(a, y, b - a, height - 4);
    if (isLong(each)) labelPrefill(view, each, from, to, y + height / 2 - 2);
  }
}

function drawWaiting(from, to, y, height) {
  paint.fillStyle = colours['prefill-soft'];
  paint.fillRect(from, y, to - from, height);
  paint.strokeStyle = colours.prefill;
  paint.lineWidth = 1;
  paint.strokeRect(from + 0.5, y + 0.5, Math.max(to - from - 1, 1), height - 1);
}

function servedSpans(view, prefill) {
  return prefill.served
    .map(([since, until]) => [Math.max(view.x(since), view.left), Math.min(view.x(until || view.end), view.right)])
    .filter(([from, to]) => to > from);
}

function labelPrefill(view, each, from, to, y) {
  const words = `${each.exact ? '' : '≈ '}${count(each.tokens)} tokens`;
  paint.font = '600 12px system-ui, sans-serif';
  const wide = paint.measureText(words).width;
  const within = to - from > wide + 8 && !each.until;
  const x = within ? to - 4 - wide : view.right - to > wide + 6 ? to + 4 : Math.max(from - 4 - wide, 0);
  if (!within) {
    paint.fillStyle = colours.card;
    paint.fillRect(x - 2, y - 7, wide + 4, 14);
  }
  text(words, x, y + 0.5, within ? colours.card : colours.prefill, paint.font);
}

// While a long prompt is read, a band over all lanes shows who stands still for it.
function drawBands(view, shown, top, bottom) {
  paint.fillStyle = colours.band;
  paint.beginPath(); // one shape, so that bands over each other are no darker
  for (const each of shown) {
    if (!isLong(each)) continue;
    for (const [from, to] of servedSpans(view, each)) paint.rect(from, top, to - from, bottom - top);
  }
  paint.fill();
}

function drawCrowd(view, top, height) {
  text(view.gutter < 100 ? 'frozen' : 'frozen, of all', 0, top + height / 2, colours.soft);
  paint.fillStyle = colours.line;
  paint.fillRect(view.left, top + height - 1, view.right - view.left, 1);
  paint.fillStyle = colours.stall;
  for (let index = 1; index < known.history.length; index += 1) {
    const { t, decoding, frozen } = known.history[index];
    if (t < view.start || known.history[index - 1].t > view.end || !decoding) continue;
    const from = Math.max(view.x(known.history[index - 1].t), view.left);
    const to = Math.min(view.x(t), view.right);
    const tall = frozen && Math.max(3, (frozen / decoding) * height);
    if (to > from) paint.fillRect(from, top + height - tall, to - from + 0.5, tall);
  }
}

function drawRow(view, top, height, row) {
  const newest = row[row.length - 1];
  const middle = top + height / 2;
  const tall = Math.min(height - 3, height * 0.72);
  if (newest && height >= 11) {
    const small = height < 15 ? '10px' : '12px';
    paint.globalAlpha = newest.over ? 0.6 : 1;
    const stalls = newest.stalls.some((stall) => stall.since < view.end && (!stall.until || stall.until > view.end));
    const font = `${stalls ? '600 ' : ''}${small} system-ui, sans-serif`;
    text(shorten(newest.name, view.gutter - 16, small), 0, middle, stalls ? colours.stall : colours.soft, font);
  }
  paint.globalAlpha = 1;
  for (const lane of row) drawTicks(view, lane, middle, tall);
  for (const stall of row.flatMap((lane) => lane.stalls)) {
    if (stall.since < view.end && (!stall.until || stall.until > view.start)) drawStall(view, stall, middle, tall);
  }
}

function drawTicks(view, lane, middle, tall) {
  paint.fillStyle = colours.tick;
  const { ticks } = lane;
  const normal = tall * 0.62;
  let before = -1;
  for (let index = firstAfter(ticks, view.start); index < ticks.length && ticks[index] <= view.end; index += 1) {
    const x = Math.round(view.x(ticks[index]) * 2) / 2;
    const bunched = index > 0 && ticks[index] - ticks[index - 1] <= 3;
    if (x === before && !bunched) continue;
    before = x;
    const high = bunched ? tall : normal;
    paint.fillRect(x, middle - high / 2, 1, high);
  }
  for (const [at] of lane.bursts) {
    if (at >= view.start && at <= view.end) paint.fillRect(view.x(at) - 1, middle - tall / 2, 4, tall);
  }
  const end = view.x(lane.last);
  if (lane.over && lane.last > view.start && lane.last < view.end) paint.fillRect(end, middle - 1, 5, 2);
}

function drawStall(view, stall, middle, tall) {
  const from = Math.max(view.x(stall.since) + 2, view.left);
  const lasts = !stall.until || stall.until > view.end;
  const to = lasts ? view.right : view.x(stall.until) - 1;
  if (to - from < 1) return;
  const high = tall * 0.8;
  paint.fillStyle = hatch;
  paint.fillRect(from, middle - high / 2, to - from, high);
  paint.strokeStyle = colours.stall;
  paint.lineWidth = lasts ? 2 : 1;
  paint.strokeRect(from, middle - high / 2, to - from, high);
  const words = duration(((lasts ? view.end : stall.until) - stall.since) / 1000);
  const fits = [14, 12, 10, 9].find((size) => {
    paint.font = `700 ${size}px system-ui, sans-serif`;
    return size < tall && paint.measureText(words).width + 4 < to - from;
  });
  if (!fits) return;
  paint.strokeStyle = colours.card;
  paint.lineWidth = 5;
  paint.lineJoin = 'round';
  paint.textAlign = 'center';
  paint.textBaseline = 'middle';
  paint.strokeText(words, (from + to) / 2, middle + 1);
  text(words, (from + to) / 2, middle + 1, colours.stall, paint.font, 'center');
}

function drawUnseen(view, bottom) {
  for (const [since, until] of known.unseen) {
    const from = Math.max(view.x(since), view.left);
    const to = Math.min(view.x(until), view.right);
    if (to <= from) continue;
    paint.fillStyle = colours.line;
    paint.fillRect(from, 0, to - from, bottom);
    const font = '600 12px system-ui, sans-serif';
    if (to - from > 60) text('not seen', (from + to) / 2, bottom - 12, colours.soft, font, 'center');
  }
}

function drawNothing(view, top, bottom) {
  const more = view.right - view.left > 520 ? ' Each one gets a lane here, and each of its tokens a tick.' : '';
  const words = known.lastT ? `No answer is streaming.${more}` : 'Waiting for the observer …';
  text(words, (view.left + view.right) / 2, (top + bottom) / 2, colours.soft, '14px system-ui, sans-serif', 'center');
}
