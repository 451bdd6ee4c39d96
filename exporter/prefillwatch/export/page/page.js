'use strict';
// Shows what /api/live tells; observer/live.py says what is in it. Names come from clients: they are only ever set as text.

document.documentElement.classList.add('js');

const $ = (id) => document.getElementById(id);
const HISTORY_MS = 60000; // kept, so that one can pause and look back
const LAG_MS = 380; // what is drawn lies so far back that all of it has arrived
const RECENT_MS = 10000;
const SILENT_MS = 4000; // without news for so long the connection is taken for lost
const HIDDEN_MS = 20000; // nobody looks at a page that is hidden for so long
const MOST_PREFILL_ROWS = 5;
const LONG_PROMPT = 512; // tokens; shorter ones hold nobody up
const MOST_KEPT_INCIDENTS = 60;
const reduced = matchMedia('(prefers-reduced-motion: reduce)');

const CAUSES = {
  prefill: 'a prompt was being read',
  preemption: 'left out while others went on, most likely preempted',
  frontend: 'the API server was busy',
  buffering: 'bytes were held back on the way',
  client: 'the client read too slowly',
  engine_pause: 'the engine paused',
  queueing: 'in line behind other requests',
  warmup: 'the server has just started',
  stuck: 'nothing came from the engine',
  before_engine: 'not handed to the engine yet',
  unattributed: 'cause unknown',
};

// --- Words -----------------------------------------------------------------------------------------------------------

const count = (number) => Math.round(number).toLocaleString('en');
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;
const isNumber = (value) => typeof value === 'number';

// A number and its unit stay on one line.
function duration(seconds) {
  if (!isNumber(seconds)) return '–';
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}\u00a0ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)}\u00a0s`;
  if (seconds < 60) return `${seconds.toFixed(1)}\u00a0s`;
  return `${Math.floor(seconds / 60)}\u00a0min ${Math.round(seconds % 60)}\u00a0s`;
}

const percent = (ratio) => (isNumber(ratio) ? `${(ratio * 100).toFixed(ratio < 0.0995 ? 1 : 0)} %` : '–');
const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');
const windowWords = (name) => name.replace(/s$/, ' s').replace(/m$/, ' min');

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function row(head, ...cells) {
  const line = make('tr');
  const first = make('th', head);
  first.scope = 'row';
  line.append(first, ...cells);
  return line;
}

// --- What is known: all times are Unix milliseconds ------------------------------------------------------------------

let instance = '';
let base = 0;
let rate = 1;
let lastT = 0; // the newest moment that the observer has told of
let lanes = new Map(); // those that stream
let past = []; // those that are over, as long as they may be seen
let prefills = new Map();
let pastPrefills = [];
let inService = new Set();
let stalls = new Map();
let unseen = []; // [since, until] in which we heard nothing
let now = { decoding: 0, prefilling: 0, frozen: 0, silence: 0, clear: 0 };
let history = []; // the same of each frame, with its moment
let figures = null;
let incidents = new Map();

function hear(hello) {
  if (hello.version !== document.querySelector('meta[name=version]').content) {
    const key = 'prefillwatch-reloaded'; // once, lest an odd cache makes us reload for ever
    if (sessionStorage.getItem(key) !== hello.version) {
      sessionStorage.setItem(key, hello.version);
      location.reload();
      return;
    }
  }
  const again = hello.instance === instance;
  if (!again) {
    for (const number of [...lanes.keys()]) part(number);
    pastPrefills.push(...[...prefills.values()].map((each) => endOf(each, lastT)));
    for (const stall of stalls.values()) stall.until ||= lastT;
    for (const [id, incident] of incidents) if (incident.ongoing) incidents.delete(id);
    for (const each of [...past, ...pastPrefills]) each.number = -1;
    lanes = new Map();
    stalls = new Map();
    prefills = new Map();
    instance = hello.instance;
    base = hello.unix * 1000;
  }
  rate = hello.rate;
  const t = base + hello.t;
  if (lastT && t > lastT) unseen.push([lastT, t]);
  offsets = [];
  lastT = Math.max(lastT, t);
  for (const number of missing(lanes, hello.lanes)) part(number);
  for (const number of missing(prefills, hello.prefills)) overPrefill([number, hello.t, false]);
  for (const number of missing(stalls, hello.stalls)) if (!stalls.get(number).until) dropStall(number);
  hello.lanes.forEach(addLane);
  hello.prefills.forEach(addPrefill);
  hello.stalls.forEach(addStall);
  serve(hello.in_service, t);
  setNow(hello.now, t);
  showFigures(hello.figures);
  showIncidents(hello.incidents);
}

function missing(known, told) {
  const numbers = new Set(told.map((each) => each[0]));
  return [...known.keys()].filter((each) => !numbers.has(each));
}

function take(frame) {
  const t = base + frame.t;
  frame.lanes?.forEach(addLane);
  for (const [number, first, ...steps] of frame.ticks) {
    const lane = lanes.get(number);
    if (!lane) continue;
    let at = base + first;
    lane.ticks.push(at);
    for (const step of steps) lane.ticks.push((at += step));
    lane.last = at;
  }
  for (const [number, at, events] of frame.bursts ?? []) lanes.get(number)?.bursts.push([base + at, events]);
  frame.gone?.forEach(part);
  frame.prefills?.forEach(addPrefill);
  frame.prefills_over?.forEach(overPrefill);
  for (const [number, tokens] of frame.sizes ?? []) {
    const known = pastPrefills.find((each) => each.number === number);
    if (known) Object.assign(known, { tokens, exact: true });
  }
  frame.stalls?.forEach(addStall);
  serve(frame.in_service, t);
  setNow(frame.now, t);
  lastT = t;
  if (t - forgotten > 5000) forget(t);
}

function setNow([decoding, prefilling, frozen, silence, clear], t) {
  history.push({ t, decoding, prefilling, frozen, silence: silence / 1000, clear: clear / 1000 });
}

// How it was at the moment that the right edge shows.
function noteNow() {
  const t = present();
  let index = history.length - 1;
  while (index > 0 && history[index].t > t) index -= 1;
  now = history[index] ?? now;
}

function addLane([number, id, choice, model, tokens, first, last]) {
  if (lanes.has(number)) return;
  const name = (id || 'no id') + (choice ? ` #${choice}` : '');
  const since = first === null ? base + (last ?? 0) : base + first;
  lanes.set(number, { number, name, model, tokens, since, last: base + (last ?? first ?? 0), ticks: [], bursts: [], stalls: [], stall: null, stalledAt: 0, row: -1 });
}

function part(number) {
  const lane = lanes.get(number);
  if (!lane) return;
  lanes.delete(number);
  lane.over = true;
  lane.stall = null;
  past.push(lane);
}

function addStall([number, laneNumber, since, until, cause]) {
  let stall = stalls.get(number);
  if (!stall) {
    const lane = lanes.get(laneNumber) ?? past.find((each) => each.number === laneNumber);
    if (!lane || until < 0) return;
    stall = { lane };
    stalls.set(number, stall);
    lane.stalls.push(stall);
  }
  const { lane } = stall;
  stall.since = base + since;
  stall.cause = cause;
  if (lane.stall === stall) lane.stall = null;
  if (until < 0) {
    dropStall(number);
    return;
  }
  stall.until = until ? base + until : 0;
  if (!until && !lane.over) lane.stall = stall;
  lane.stalledAt = stall.until || lastT;
}

function dropStall(number) {
  const stall = stalls.get(number);
  const { lane } = stall;
  stalls.delete(number);
  lane.stalls = lane.stalls.filter((each) => each !== stall);
  if (lane.stall === stall) lane.stall = null;
}

function addPrefill([number, id, model, tokens, exact, since, streaming]) {
  const known = prefills.get(number);
  if (known) Object.assign(known, { tokens, exact });
  else prefills.set(number, { number, id, model, tokens, exact, since: base + since, until: 0, streaming, served: [], row: -1 });
}

function endOf(prefill, at) {
  prefill.until = at;
  const last = prefill.served[prefill.served.length - 1];
  if (last && !last[1]) last[1] = at;
  return prefill;
}

function overPrefill([number, until, answered]) {
  const prefill = prefills.get(number);
  if (!prefill) return;
  prefills.delete(number);
  prefill.answered = answered;
  pastPrefills.push(endOf(prefill, base + until));
}

// Whether a prompt is being read or waits in line is known a frame at a time.
function serve(numbers, t) {
  inService = new Set(numbers);
  for (const [number, prefill] of prefills) {
    const last = prefill.served[prefill.served.length - 1];
    const isServed = Boolean(last && !last[1]);
    if (inService.has(number) && !isServed) prefill.served.push([prefill.served.length ? t : Math.max(prefill.since, t - 200), 0]);
    if (!inService.has(number) && isServed) last[1] = t;
  }
}

let forgotten = 0;

function forget(t) {
  forgotten = t;
  const edge = t - (lanes.size > 120 ? HISTORY_MS / 3 : HISTORY_MS) - 5000;
  for (const lane of [...lanes.values(), ...past]) {
    lane.ticks.splice(0, firstAfter(lane.ticks, edge));
    lane.bursts = lane.bursts.filter(([at]) => at > edge);
    lane.stalls = lane.stalls.filter((stall) => !stall.until || stall.until > edge);
  }
  past = past.filter((lane) => lane.last > edge);
  pastPrefills = pastPrefills.filter((each) => each.until > edge);
  unseen = unseen.filter(([, until]) => until > edge);
  history = history.filter((each) => each.t > edge);
  for (const [number, stall] of stalls) if (stall.until && stall.until < edge) stalls.delete(number);
}

function firstAfter(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// --- The connection --------------------------------------------------------------------------------------------------

let source = null;
let heardAt = 0;
let wait = 1000;
let retryTimer = 0;
let offsets = []; // of our clock to the observer's; the least of the latest is nearest the truth

function connection(state, words) {
  document.documentElement.dataset.connection = state;
  $('connection').dataset.state = state;
  say($('connection'), words);
}

function connect() {
  source?.close();
  clearTimeout(retryTimer);
  source = new EventSource('/api/live');
  const on = (name, handle) =>
    source.addEventListener(name, (event) => {
      heardAt = performance.now();
      const document = JSON.parse(event.data);
      handle(document);
      if (document.t !== undefined) noteTime(document.t);
    });
  on('hello', (hello) => {
    wait = 1000;
    connection('live', 'live');
    hear(hello);
  });
  on('frame', (frame) => {
    if ($('connection').textContent !== 'live') connection('live', 'live');
    take(frame);
  });
  on('idle', () => connection('live', 'nothing new')); // a recording that has ended, most likely
  on('figures', showFigures);
  on('incidents', showIncidents);
  source.onerror = lost;
}

function lost() {
  connection('reconnecting', 'reconnecting …');
  if (source && source.readyState === EventSource.CLOSED) {
    // An answer that is no stream makes the browser give up; we do not.
    clearTimeout(retryTimer);
    retryTimer = setTimeout(connect, wait);
    wait = Math.min(wait * 2, 10000);
  }
}

function noteTime(t) {
  offsets.push(performance.now() - t / rate);
  if (offsets.length > 50) offsets.shift();
}

// The moment at the right edge: never beyond what we have heard of.
function present() {
  if (!offsets.length) return lastT;
  const t = (performance.now() - Math.min(...offsets)) * rate - LAG_MS * rate;
  return Math.min(base + t, lastT);
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => {
      source?.close();
      source = null;
      clearTimeout(retryTimer);
      connection('away', 'resting while hidden');
    }, HIDDEN_MS);
  } else if (!source) connect();
});
let hiddenTimer = 0;

setInterval(() => {
  if (source && heardAt && performance.now() - heardAt > SILENT_MS && document.documentElement.dataset.connection === 'live') {
    connection('reconnecting', 'reconnecting …');
    heardAt = performance.now();
    connect();
  }
}, 1000);

// --- The lanes -------------------------------------------------------------------------------------------------------

const canvas = $('canvas');
const paint = canvas.getContext('2d');
let colours = {};
let span = 10000;
let pausedAt = 0;
let spot = null; // what somebody asked to be shown
let rows = [];
let sortedAt = 0;
let crowded = false;
let hatch = null;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['card', 'ink', 'soft', 'line', 'tick', 'stall', 'stall-soft', 'prefill', 'prefill-soft', 'band']) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  hatch = hatching(colours.stall, colours['stall-soft']);
}

function hatching(line, ground) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const brush = tile.getContext('2d');
  brush.fillStyle = ground;
  brush.fillRect(0, 0, 8, 8);
  brush.strokeStyle = line;
  brush.lineWidth = 1.6;
  for (const shift of [-8, 0, 8]) {
    brush.beginPath();
    brush.moveTo(shift - 1, 9);
    brush.lineTo(shift + 9, -1);
    brush.stroke();
  }
  return paint.createPattern(tile, 'repeat');
}

// Rows keep their lanes while all fit, so that nothing jumps; else the affected come first.
function arrange(most, end) {
  const stalled = [...lanes.values()].filter((lane) => lane.stall).length;
  if (lanes.size <= most) {
    crowded = false;
    keepRows(most);
  } else if (!crowded || end - sortedAt > 1000 || stalled !== arrange.stalled) {
    crowded = true;
    sortedAt = end;
    const rank = (lane) => (lane.stall ? 2 : end - lane.stalledAt < RECENT_MS ? 1 : 0);
    const order = [...lanes.values()].sort((a, b) => rank(b) - rank(a) || b.since - a.since);
    for (const lane of lanes.values()) lane.row = -1;
    rows = order.slice(0, most).map((lane, index) => ((lane.row = index), [lane]));
  }
  arrange.stalled = stalled;
}

function keepRows(most) {
  const start = lastT - span - RECENT_MS;
  rows = rows.map((row) => row.filter((lane) => !lane.over || lane.last > start));
  for (const lane of lanes.values()) {
    if (lane.row >= 0 && rows[lane.row]?.includes(lane)) continue;
    let free = rows.findIndex((row) => row.every((each) => each.over));
    if (free < 0) free = rows.push([]) - 1;
    rows[free].push(lane);
    lane.row = free;
  }
  while (rows.length && (rows.length > most || !rows[rows.length - 1].length)) {
    for (const lane of rows.pop()) lane.row = -1;
  }
}

// A row for each prompt as long as it is read; behind a long one there is room for its size in words.
function prefillRows(view) {
  const shown = [...pastPrefills, ...prefills.values()].filter((each) => each.since < view.end && !(each.until < view.start && each.until));
  shown.sort((a, b) => a.since - b.since);
  const ends = [];
  let hidden = 0;
  for (const each of shown) {
    let free = each.row >= 0 && !(ends[each.row] > each.since) ? each.row : 0;
    while (ends[free] > each.since) free += 1;
    each.row = free < MOST_PREFILL_ROWS ? free : -1;
    if (each.row < 0) hidden += 1;
    else ends[free] = each.until ? each.until + (each.tokens >= LONG_PROMPT ? view.ms(100) : 0) : Infinity;
  }
  return { shown: shown.filter((each) => each.row >= 0), hidden };
}

function draw() {
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

function text(words, x, y, colour, font = '12px system-ui, sans-serif', align = 'left') {
  paint.font = font;
  paint.fillStyle = colour;
  paint.textAlign = align;
  paint.textBaseline = 'middle';
  paint.fillText(words, x, y);
}

function drawAxis(view, y) {
  const step = [1000, 2000, 5000, 10000].find((each) => (each / span) * (view.right - view.left) >= 56) ?? span;
  for (let back = 0; back <= span; back += step) {
    const x = Math.round(view.right - (back / span) * (view.right - view.left));
    paint.fillStyle = colours.line;
    paint.fillRect(x, 0, 1, y);
    const words = back ? `−${back / 1000} s` : pausedAt ? clock(view.end) : 'now';
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
    if (each.tokens >= LONG_PROMPT) labelPrefill(view, each, from, to, y + height / 2 - 2);
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
    if (each.tokens < LONG_PROMPT) continue;
    for (const [from, to] of servedSpans(view, each)) paint.rect(from, top, to - from, bottom - top);
  }
  paint.fill();
}

function drawCrowd(view, top, height) {
  text('frozen, of all', 0, top + height / 2, colours.soft);
  paint.fillStyle = colours.line;
  paint.fillRect(view.left, top + height - 1, view.right - view.left, 1);
  paint.fillStyle = colours.stall;
  for (let index = 1; index < history.length; index += 1) {
    const { t, decoding, frozen } = history[index];
    if (t < view.start || history[index - 1].t > view.end || !decoding) continue;
    const from = Math.max(view.x(history[index - 1].t), view.left);
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
    text(shorten(newest.name, view.gutter - 12, small), 0, middle, newest.stall ? colours.stall : colours.soft, `${newest.stall ? '600 ' : ''}${small} system-ui, sans-serif`);
  }
  paint.globalAlpha = 1;
  for (const lane of row) drawTicks(view, lane, middle, tall);
  for (const stall of row.flatMap((lane) => lane.stalls)) {
    if (stall.since < view.end && (!stall.until || stall.until > view.start)) drawStall(view, stall, middle, tall);
  }
}

const shortened = new Map();

function shorten(words, room, size) {
  const key = `${size}${room}${words}`;
  let found = shortened.get(key);
  if (found === undefined) {
    if (shortened.size > 2000) shortened.clear();
    paint.font = `${size} system-ui, sans-serif`;
    found = words;
    if (paint.measureText(found).width > room) {
      let keep = words.length - 1;
      while (keep > 4 && paint.measureText(`${words.slice(0, keep)}…`).width > room) keep -= 1;
      found = `${words.slice(0, keep)}…`;
    }
    shortened.set(key, found);
  }
  return found;
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
  for (const [since, until] of unseen) {
    const from = Math.max(view.x(since), view.left);
    const to = Math.min(view.x(until), view.right);
    if (to <= from) continue;
    paint.fillStyle = colours.line;
    paint.fillRect(from, 0, to - from, bottom);
    if (to - from > 60) text('not seen', (from + to) / 2, bottom - 12, colours.soft, '600 12px system-ui, sans-serif', 'center');
  }
}

function drawNothing(view, top, bottom) {
  const words = lastT ? 'No answer is streaming. Each one gets a lane here, and each of its tokens a tick.' : 'Waiting for the observer …';
  text(words, (view.left + view.right) / 2, (top + bottom) / 2, colours.soft, '14px system-ui, sans-serif', 'center');
}

// As fast as it pays: smooth while cheap, and calm where motion is not wanted.
let drawnAt = 0;
let cost = 0;

function tick(at) {
  requestAnimationFrame(tick);
  const least = reduced.matches ? 1000 : Math.max(30, cost * 4);
  if (at - drawnAt < least || document.hidden) return;
  drawnAt = at;
  const before = performance.now();
  const view = draw();
  cost = cost * 0.8 + (performance.now() - before) * 0.2;
  document.documentElement.dataset.frames = Number(document.documentElement.dataset.frames ?? 0) + 1;
  tellCounts(view);
}

// --- Words about now -------------------------------------------------------------------------------------------------

let toldAt = 0;

function tellCounts(view) {
  if (performance.now() - toldAt < 200) return;
  toldAt = performance.now();
  const root = document.documentElement.dataset;
  noteNow();
  root.frozen = now.frozen;
  root.decoding = now.decoding;
  const shown = Math.min(view.shown, lanes.size);
  const hidden = now.decoding - shown;
  say($('lanes-count'), now.decoding ? (hidden > 0 ? `${count(shown)} of ${count(now.decoding)} shown, the affected first` : `${count(now.decoding)} decoding`) : '');
  tellVerdict();
  if (performance.now() - tellCounts.slow > 1000) {
    tellCounts.slow = performance.now();
    canvas.setAttribute('aria-label', `${$('verdict-title').textContent}. ${$('verdict-more').textContent}`);
    if (document.querySelector('details').open) showTable();
  }
}
tellCounts.slow = 0;

function latestFreeze() {
  return [...incidents.values()].find((each) => each.kind === 'freeze');
}

function tellVerdict() {
  const [level, title, more] = verdict();
  $('verdict').dataset.level = level;
  say($('verdict-title'), title);
  say($('verdict-more'), more);
  const mark = now.frozen ? `(${now.frozen} frozen) ` : '';
  if (document.title !== `${mark}prefillwatch`) document.title = `${mark}prefillwatch`;
}

function verdict() {
  if (!figures) return ['idle', 'Connecting …', ''];
  if (document.documentElement.dataset.connection !== 'live') return ['down', 'No news from the observer', 'Answers stream on without it; this page comes back by itself.'];
  if (now.frozen) {
    const many = now.frozen > 2 || now.frozen * 4 > now.decoding;
    return [many ? 'frozen' : 'recent', `${count(now.frozen)} of ${plural(now.decoding, 'stream')} frozen for ${duration(now.silence + Math.max(0, present() - now.t) / 1000)}`, ongoingWords()];
  }
  const last = latestFreeze();
  const ago = last ? now.t / 1000 - (last.started_at + last.duration_seconds) : Infinity;
  if (ago < 15) {
    const when = ago < 1.5 ? 'just now' : `${Math.round(ago)} s ago`;
    return ['recent', `${plural(last.victims, 'stream')} froze for up to ${duration(last.worst_gap_seconds)}, ${when}`, blameWords(last)];
  }
  if (!figures.ready) return ['down', figures.reason.startsWith('draining') ? 'Draining' : 'Not serving', `${sentence(figures.reason)} ${stillWords()}`];
  if (now.decoding) {
    const usual = now.clear ? `; a step without a prompt takes ${duration(now.clear)}` : '';
    return ['good', `${plural(now.decoding, 'stream')} flowing`, `Longest silence now ${duration(now.silence)}${usual}. ${waitingWords()}`];
  }
  if (now.prefilling) return ['good', `${plural(now.prefilling, 'prompt')} being read`, 'Nobody is decoding, so nobody can freeze.'];
  return ['idle', 'No traffic now', 'Streams through the data port are shown here as they come.'];
}

const stillWords = () => (now.decoding ? `${plural(now.decoding, 'stream')} still flowing.` : '');
const sentence = (words) => words && `${words[0].toUpperCase()}${words.slice(1)}.`;
const waitingWords = () => (now.prefilling ? `${plural(now.prefilling, 'request')} in prefill.` : '');

function ongoingWords() {
  const ongoing = [...incidents.values()].find((each) => each.ongoing && each.kind === 'freeze');
  if (ongoing && ongoing.cause !== 'unattributed') return blameWords(ongoing);
  const served = [...prefills.values()].filter((each) => inService.has(each.number)).sort((a, b) => b.tokens - a.tokens);
  if (!served.length) return 'No prompt is being read that would explain it.';
  return `Meanwhile a prompt of ${count(served[0].tokens)} tokens is being read.`;
}

function blameWords(incident) {
  if (incident.cause !== 'prefill' || !incident.culprit_count) return sentence(CAUSES[incident.cause] ?? incident.cause);
  const first = incident.culprits[0];
  const were = incident.ongoing && now.frozen ? 'being read' : 'read';
  if (incident.culprit_count === 1 || first.share > 0.9) {
    return `Cause: a prompt of ${count(first.prompt_tokens)} tokens ${were}${first.request_id && `, ${first.request_id}`}.`;
  }
  const most = first.request_id && `, most of it ${first.request_id}`;
  return `Cause: ${count(incident.culprit_count)} prompts of ${count(incident.culprit_tokens)} tokens in all ${were}${most}.`;
}

function showTable() {
  const order = [...lanes.values()].sort((a, b) => a.last - b.last).slice(0, 20);
  const body = $('table').tBodies[0];
  body.replaceChildren(
    ...order.map((lane) => {
      const silent = Math.max(0, lastT - lane.last) / 1000;
      return row(lane.name, make('td', count(lane.tokens)), make('td', duration(silent)), make('td', lane.stall ? `stalled: ${CAUSES[lane.stall.cause] ?? lane.stall.cause}` : 'flowing'));
    }),
  );
}

// --- Incidents -------------------------------------------------------------------------------------------------------

let announcedAt = 0;
let announcements = [];
let firstList = true;

function showIncidents(list) {
  const closed = [];
  for (const incident of list) {
    const before = incidents.get(incident.id);
    if (!incident.ongoing && (!before || before.ongoing)) closed.push(incident);
  }
  const told = new Set(list.map((each) => each.id));
  for (const [id, incident] of incidents) if (incident.ongoing && !told.has(id)) incidents.delete(id);
  for (const incident of list) incidents.set(incident.id, incident);
  const order = [...incidents.values()].sort((a, b) => b.started_at - a.started_at).slice(0, MOST_KEPT_INCIDENTS);
  incidents = new Map(order.map((each) => [each.id, each]));
  if (!firstList) announcements.push(...closed);
  firstList = false;
  renderIncidents();
  announce();
}

function renderIncidents() {
  const list = $('incident-list');
  const items = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const order = [...incidents.values()].map((incident) => {
    const state = JSON.stringify(incident);
    const item = items.get(incident.id) ?? make('li');
    if (item.dataset.state !== state) {
      item.dataset.state = state;
      item.dataset.id = incident.id;
      const focused = item.contains(document.activeElement);
      fillIncident(item, incident);
      if (focused) item.querySelector('button')?.focus();
    }
    return item;
  });
  const inPlace = order.length === list.children.length && order.every((item, index) => list.children[index] === item);
  if (!inPlace) list.replaceChildren(...order);
  $('no-incidents').hidden = order.length > 0;
  const lasting = order.length ? [...incidents.values()].filter((each) => each.ongoing).length : 0;
  say($('incidents-count'), order.length ? (lasting ? `newest first, ${lasting} ongoing` : 'newest first') : '');
}

function fillIncident(item, incident) {
  item.className = `incident ${incident.cause === 'prefill' ? 'prefill' : ''} ${incident.ongoing ? 'ongoing' : ''}`;
  const line = make('div', undefined, 'line');
  line.append(make('h3', `${incident.kind === 'freeze' ? 'Freeze' : 'Wait'}: ${incident.cause.replace('_', ' ')}`));
  if (incident.ongoing) line.append(make('span', 'ongoing', 'state'));
  const time = make('time', clock(incident.started_at * 1000));
  time.dateTime = new Date(incident.started_at * 1000).toISOString();
  line.append(time);
  item.replaceChildren(line, make('p', victimWords(incident)));
  if (incident.culprit_count) item.append(culprits(incident));
  else if (incident.cause !== 'prefill') item.append(make('p', sentence(CAUSES[incident.cause] ?? ''), 'who'));
  if (!incident.ongoing) item.append(showButton(incident));
}

function victimWords(incident) {
  if (incident.kind !== 'freeze') return `${plural(incident.victims, 'request')} waited up to ${duration(incident.worst_gap_seconds)} for a first token.`;
  const usual = incident.baseline_gap_seconds ? `, usually ${duration(incident.baseline_gap_seconds)}` : '';
  return `${count(incident.victims)} of ${plural(Math.max(incident.victims, incident.decoding), 'stream')}. Worst gap ${duration(incident.worst_gap_seconds)}${usual}; ${duration(incident.stall_seconds)} lost in all.`;
}

function culprits(incident) {
  const list = make('ul');
  for (const each of incident.culprits.slice(0, 3)) {
    const about = each.prompt_tokens_source === 'usage' ? '' : '≈ ';
    const cached = each.prompt_tokens - each.uncached_prompt_tokens;
    const line = make('li', `${about}${count(each.prompt_tokens)} tokens${cached ? ` (${count(cached)} cached)` : ''}, ${percent(each.share)} of the blame: `);
    line.append(make('code', each.request_id || (incident.ongoing ? 'its id is not known yet' : 'no id')));
    list.append(line);
  }
  if (incident.culprit_count > 3) list.append(make('li', `and ${count(incident.culprit_count - 3)} more, ${count(incident.culprit_tokens)} tokens in all`, 'who'));
  return list;
}

function showButton(incident) {
  const button = make('button', 'Show in lanes');
  button.type = 'button';
  button.addEventListener('click', () => {
    const middle = (incident.started_at + incident.duration_seconds / 2) * 1000;
    setPaused(Math.min(middle + span / 2, lastT));
    $('stage').focus();
  });
  button.hidden = lastT - incident.started_at * 1000 > HISTORY_MS;
  button.dataset.until = incident.started_at * 1000 + HISTORY_MS;
  return button;
}

setInterval(() => {
  for (const button of document.querySelectorAll('.incident button')) button.hidden = Number(button.dataset.until) < lastT;
  announce();
}, 2000);

// Spoken at most every ten seconds, and then once for all.
function announce() {
  if (!announcements.length || performance.now() - announcedAt < 10000) return;
  announcedAt = performance.now();
  const worst = announcements.reduce((a, b) => (b.stall_seconds > a.stall_seconds ? b : a));
  const more = announcements.length > 1 ? ` And ${announcements.length - 1} more.` : '';
  say($('announcer'), `${worst.kind === 'freeze' ? 'Freeze' : 'Wait'}, ${CAUSES[worst.cause] ?? worst.cause}: ${victimWords(worst)}${more}`);
  announcements = [];
}

// --- Figures ---------------------------------------------------------------------------------------------------------

let chosenModel = '';

function showFigures(news) {
  figures = news;
  say($('server'), news.server ? `in front of ${news.server === 'vllm' ? 'vLLM' : news.server}` : '');
  const names = news.models.map((each) => each.model);
  chooseAmong(names);
  const model = news.models.find((each) => each.model === chosenModel) ?? news.models[0];
  showGaps(news.windows, model);
  showFirstTokens(news.windows, model);
  showEngines(news);
  showAdvice(model?.advice);
}

function chooseAmong(names) {
  const select = $('model');
  $('model-choice').hidden = names.length < 2;
  if (!names.includes(chosenModel)) chosenModel = names[0] ?? '';
  const order = [...names].sort();
  if (order.join('\n') !== [...select.options].map((each) => each.value).join('\n')) {
    select.replaceChildren(...order.map((name) => new Option(name, name)));
  }
  select.value = chosenModel;
}

$('model').addEventListener('change', () => {
  chosenModel = $('model').value;
  if (figures) showFigures(figures);
});

function showGaps(windows, model) {
  const body = $('gaps').querySelector('tbody');
  let note = 'No gap between tokens was seen yet.';
  const lines = windows.map((name, index) => {
    const values = model?.gap_p99[index] ?? [null, null, null];
    const [, during, clear] = values;
    const high = isNumber(during) && isNumber(clear) && during > 2 * clear && during >= 0.1;
    if (high) note = `While a prompt was being read, the p99 gap was ${(during / clear).toFixed(during / clear < 10 ? 1 : 0)} times as long (${windowWords(name)}).`;
    else if (isNumber(during)) note = 'Prompts hardly make the gaps of others longer.';
    else if (isNumber(clear)) note = 'No prompt was being read meanwhile.';
    const cells = values.map((value) => make('td', duration(value)));
    if (high) cells[1].className = 'high';
    return row(windowWords(name), ...cells);
  });
  body.replaceChildren(...lines);
  say($('gaps-note'), note);
}

function showFirstTokens(windows, model) {
  const known = model?.first_token_p99 ?? [];
  let index = Math.min(1, windows.length - 1); // a minute; longer where that has nothing
  while (index < windows.length - 1 && !known.some(([, values]) => isNumber(values[index]))) index += 1;
  const seen = known.filter(([, values]) => isNumber(values[index]));
  const longest = Math.max(...seen.map(([, values]) => values[index]));
  say($('first-window'), windows[index] ? windowWords(windows[index]) : '');
  $('first').querySelector('table').hidden = !seen.length;
  $('first').querySelector('.empty').hidden = seen.length > 0;
  const lines = seen.map(([bucket, values]) => {
    const cell = make('td');
    const bar = make('div', undefined, 'bar');
    bar.style.width = `${(values[index] / longest) * 100}%`;
    cell.append(bar);
    return row(bucket, cell, make('td', duration(values[index])));
  });
  $('first').querySelector('tbody').replaceChildren(...lines);
}

function showEngines(news) {
  const known = news.engines.filter((each) => isNumber(each.used));
  $('cache').querySelector('.empty').hidden = known.length > 0;
  const shown = known.slice(0, 4).map((engine) => showEngine(engine, news.windows, known.length > 1));
  const more = known.length - shown.length + news.more_engines;
  if (more > 0) shown.push(make('p', `and ${plural(more, 'engine')} with less`, 'note'));
  $('engines').replaceChildren(...shown);
}

function showEngine(engine, windows, named) {
  const box = make('div', undefined, 'engine');
  const line = make('div', undefined, 'line');
  const name = named ? `engine ${engine.engine}` : 'in use';
  line.append(make('span', name), make('strong', percent(engine.used)));
  const meter = make('div', undefined, 'meter');
  meter.setAttribute('role', 'meter');
  meter.setAttribute('aria-label', `KV cache, ${name}`);
  meter.setAttribute('aria-valuemin', '0');
  meter.setAttribute('aria-valuemax', '100');
  meter.setAttribute('aria-valuenow', String(Math.round(engine.used * 100)));
  meter.dataset.level = engine.used > 0.9 ? 'high' : 'usual';
  const fill = make('div');
  fill.style.width = `${engine.used * 100}%`;
  meter.append(fill);
  const peak = engine.peaks[engine.peaks.length - 1];
  if (isNumber(peak)) {
    const mark = make('i');
    mark.style.left = `calc(${Math.min(peak, 1) * 100}% - 1px)`;
    meter.append(mark);
  }
  const facts = [];
  if (isNumber(peak)) facts.push(`most in ${windowWords(windows[windows.length - 1])}: ${percent(peak)}`);
  if (isNumber(engine.free_tokens)) facts.push(`room for ${count(engine.free_tokens)} of ${count(engine.capacity_tokens)} tokens`);
  if (isNumber(engine.running)) facts.push(`${count(engine.running)} running, ${count(engine.waiting ?? 0)} waiting`);
  if (isNumber(engine.preemptions)) facts.push(plural(engine.preemptions, 'preemption'));
  box.append(line, meter, make('p', facts.join(' · ')));
  return box;
}

function showAdvice(advice) {
  const tokens = advice?.advised_max_batched_tokens;
  $('advised').hidden = !isNumber(tokens);
  say($('advised'), isNumber(tokens) ? `--max-num-batched-tokens ${tokens}` : '');
  say($('advice-words'), advice ? `${advice.words}.` : 'no advice yet: no engine step with a prompt in it was seen.');
}

// --- Controls --------------------------------------------------------------------------------------------------------

function setPaused(at) {
  pausedAt = at;
  $('pause').setAttribute('aria-pressed', String(Boolean(at)));
  say($('pause'), at ? 'Go on' : 'Pause');
}

const togglePause = () => setPaused(pausedAt ? 0 : present());
$('pause').addEventListener('click', togglePause);
for (const choice of document.querySelectorAll('input[name=span]')) {
  choice.addEventListener('change', () => (span = Number(choice.value) * 1000));
  if (choice.checked) span = Number(choice.value) * 1000;
}
$('stage').addEventListener('keydown', (event) => {
  if (event.key === ' ') togglePause();
  else if (event.key === 'ArrowLeft') setPaused(Math.max((pausedAt || present()) - span / 10, lastT - HISTORY_MS + span));
  else if (event.key === 'ArrowRight' && pausedAt) setPaused(pausedAt + span / 10 < lastT ? pausedAt + span / 10 : 0);
  else if (event.key === 'Home') setPaused(lastT - HISTORY_MS + span);
  else if (event.key === 'End') setPaused(0);
  else return;
  event.preventDefault();
});

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', readColours);
readColours();
connect();
requestAnimationFrame(tick);
