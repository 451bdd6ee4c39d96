// What the observer has sent; observer/live/feed.py says in which form. All times here are Unix milliseconds.

export const HISTORY_MS = 60000; // kept, so that one can pause and look back
const LAG_MS = 380; // what is drawn lies so far back that all of it has arrived

const FRAME_MS = 200;

export const known = {
  instance: '',
  recording: '', // 'playing', 'ended', or nothing of the kind
  base: 0,
  rate: 1,
  since: 0, // before that we know of nothing
  lastT: 0, // the newest moment that the observer has reported
  lanes: new Map(), // those that stream
  past: [], // those that are over, as long as they may be seen
  prefills: new Map(),
  pastPrefills: [],
  inService: new Set(),
  stalls: new Map(),
  unseen: [], // [since, until] in which we heard nothing
  now: { t: 0, decoding: 0, prefilling: 0, frozen: 0, silence: 0, clear: 0 },
  history: [], // the same of each frame
  figures: null,
  incidents: new Map(),
  causes: {}, // in words, by name
  limits: {}, // from where on something is shown as high
  rule: [], // what is a stall: shortest gap, times the usual one, always
};

export const causeWords = (name) => known.causes[name] ?? name;

export function hear(hello) {
  const again = hello.instance === known.instance;
  if (!again) {
    for (const number of [...known.lanes.keys()]) part(number);
    known.pastPrefills.push(...[...known.prefills.values()].map((each) => endOf(each, known.lastT)));
    for (const stall of known.stalls.values()) stall.until ||= known.lastT;
    for (const [id, incident] of known.incidents) if (incident.ongoing) known.incidents.delete(id);
    for (const each of [...known.past, ...known.pastPrefills]) each.number = -1;
    known.lanes = new Map();
    known.stalls = new Map();
    known.prefills = new Map();
    known.instance = hello.instance;
    known.base = hello.unix * 1000;
  }
  known.rate = hello.rate;
  known.recording = hello.recording;
  known.causes = hello.causes;
  known.limits = hello.limits;
  known.rule = hello.rule;
  const t = known.base + hello.t;
  if (t < known.lastT - 1000) forgetAll(); // a clock was set back, or a recording is played once more
  known.since ||= t;
  if (known.lastT && t > known.lastT) known.unseen.push([known.lastT, t]);
  offsets = [];
  known.lastT = Math.max(known.lastT, t);
  for (const number of missing(known.lanes, hello.lanes)) part(number);
  for (const number of missing(known.prefills, hello.prefills)) overPrefill([number, hello.t, false]);
  for (const number of missing(known.stalls, hello.stalls)) if (!known.stalls.get(number).until) dropStall(number);
  hello.lanes.forEach(addLane);
  hello.prefills.forEach(addPrefill);
  hello.stalls.forEach(addStall);
  serve(hello.in_service, t);
  setNow(hello.now, t);
}

function forgetAll() {
  for (const lane of known.past) lane.last = 0;
  Object.assign(known, { lastT: 0, since: 0, past: [], pastPrefills: [], unseen: [], history: [], incidents: new Map() });
}

function missing(all, sent) {
  const numbers = new Set(sent.map((each) => each[0]));
  return [...all.keys()].filter((each) => !numbers.has(each));
}

export function take(frame) {
  const t = known.base + frame.t;
  frame.lanes?.forEach(addLane);
  for (const [number, first, ...steps] of frame.ticks) {
    const lane = known.lanes.get(number);
    if (!lane) continue;
    let at = known.base + first;
    lane.ticks.push(at);
    for (const step of steps) lane.ticks.push((at += step));
    lane.last = at;
  }
  for (const [number, at, events] of frame.bursts ?? []) {
    known.lanes.get(number)?.bursts.push([known.base + at, events]);
  }
  frame.gone?.forEach(part);
  frame.prefills?.forEach(addPrefill);
  frame.prefills_over?.forEach(overPrefill);
  for (const [number, tokens] of frame.sizes ?? []) {
    const over = known.pastPrefills.find((each) => each.number === number);
    if (over) Object.assign(over, { tokens, exact: true });
  }
  frame.stalls?.forEach(addStall);
  serve(frame.in_service, t);
  setNow(frame.now, t);
  known.lastT = t;
  if (t - forgotten > 5000) forget(t);
}

function setNow([decoding, prefilling, frozen, silence, clear], t) {
  known.history.push({ t, decoding, prefilling, frozen, silence: silence / 1000, clear: clear / 1000 });
}

// How it was at the moment that the right edge shows.
export function noteNow() {
  const t = present();
  let index = known.history.length - 1;
  while (index > 0 && known.history[index].t > t) index -= 1;
  known.now = known.history[index] ?? known.now;
}

function addLane([number, id, choice, model, tokens, first, last]) {
  if (known.lanes.has(number)) return;
  const name = (id || 'no id') + (choice ? ` #${choice}` : '');
  const since = first === null ? known.base + (last ?? 0) : known.base + first;
  const lane = { number, name, model, tokens, since, last: known.base + (last ?? first ?? 0), over: false };
  known.lanes.set(number, { ...lane, ticks: [], bursts: [], stalls: [], stall: null, stalledAt: 0, row: -1 });
}

function part(number) {
  const lane = known.lanes.get(number);
  if (!lane) return;
  known.lanes.delete(number);
  lane.over = true;
  lane.stall = null;
  known.past.push(lane);
}

function addStall([number, laneNumber, since, until, cause]) {
  let stall = known.stalls.get(number);
  if (!stall) {
    const lane = known.lanes.get(laneNumber) ?? known.past.find((each) => each.number === laneNumber);
    if (!lane || until < 0) return;
    stall = { lane };
    known.stalls.set(number, stall);
    lane.stalls.push(stall);
  }
  const { lane } = stall;
  stall.since = known.base + since;
  stall.cause = cause;
  if (lane.stall === stall) lane.stall = null;
  if (until < 0) {
    dropStall(number);
    return;
  }
  stall.until = until ? known.base + until : 0;
  if (!until && !lane.over) lane.stall = stall;
  lane.stalledAt = stall.until || known.lastT;
}

function dropStall(number) {
  const stall = known.stalls.get(number);
  const { lane } = stall;
  known.stalls.delete(number);
  lane.stalls = lane.stalls.filter((each) => each !== stall);
  if (lane.stall === stall) lane.stall = null;
}

function addPrefill([number, id, model, tokens, exact, since, streaming]) {
  const before = known.prefills.get(number);
  if (before) Object.assign(before, { tokens, exact });
  else {
    const prefill = { number, id, model, tokens, exact, streaming, since: known.base + since, until: 0 };
    known.prefills.set(number, { ...prefill, served: [], row: -1 });
  }
}

function endOf(prefill, at) {
  prefill.until = at;
  const last = prefill.served[prefill.served.length - 1];
  if (last && !last[1]) last[1] = at;
  return prefill;
}

function overPrefill([number, until, answered]) {
  const prefill = known.prefills.get(number);
  if (!prefill) return;
  known.prefills.delete(number);
  prefill.answered = answered;
  known.pastPrefills.push(endOf(prefill, known.base + until));
}

// Whether a prompt is being read or waits in line is known a frame at a time.
function serve(numbers, t) {
  known.inService = new Set(numbers);
  for (const [number, prefill] of known.prefills) {
    const last = prefill.served[prefill.served.length - 1];
    const isServed = Boolean(last && !last[1]);
    const since = prefill.served.length ? t : Math.max(prefill.since, t - FRAME_MS);
    if (known.inService.has(number) && !isServed) prefill.served.push([since, 0]);
    if (!known.inService.has(number) && isServed) last[1] = t;
  }
}

let forgotten = 0;

function forget(t) {
  forgotten = t;
  const edge = t - (known.lanes.size > 120 ? HISTORY_MS / 3 : HISTORY_MS) - 5000;
  for (const lane of [...known.lanes.values(), ...known.past]) {
    lane.ticks.splice(0, firstAfter(lane.ticks, edge));
    lane.bursts = lane.bursts.filter(([at]) => at > edge);
    lane.stalls = lane.stalls.filter((stall) => !stall.until || stall.until > edge);
  }
  known.past = known.past.filter((lane) => lane.last > edge);
  known.pastPrefills = known.pastPrefills.filter((each) => each.until > edge);
  known.unseen = known.unseen.filter(([, until]) => until > edge);
  known.history = known.history.filter((each) => each.t > edge);
  for (const [number, stall] of known.stalls) if (stall.until && stall.until < edge) known.stalls.delete(number);
}

export function firstAfter(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// --- Time ------------------------------------------------------------------------------------------------------------

let offsets = []; // of our clock to the observer's; the least of the latest is nearest the truth

export function noteTime(t) {
  offsets.push(performance.now() - t / known.rate);
  if (offsets.length > 50) offsets.shift();
}

// The moment at the right edge: never beyond what we have heard of.
export function present() {
  if (!offsets.length) return known.lastT;
  const t = (performance.now() - Math.min(...offsets)) * known.rate - LAG_MS * known.rate;
  return Math.min(known.base + t, known.lastT);
}
