// Which lane and which prompt is in which row.

import { known } from './known.js';
import { span } from './view.js';

const MOST_PREFILL_ROWS = 5;
const RECENT_MS = 10000;

export let rows = []; // of lanes: one that is over and the next that took its place share a row
export let crowded = false; // whether there are more lanes than rows
let sortedAt = 0;

export const isLong = (prompt) => prompt.tokens >= known.limits.long_prompt; // shorter ones hold nobody up
let sortedStalled = 0;


// Rows keep their lanes while all fit, so that nothing jumps; else the affected come first.
export function arrange(most, end) {
  const stalled = [...known.lanes.values()].filter((lane) => lane.stall).length;
  if (known.lanes.size <= most) {
    crowded = false;
    keepRows(most);
  } else if (!crowded || end - sortedAt > 1000 || stalled !== sortedStalled) {
    crowded = true;
    sortedAt = end;
    const rank = (lane) => (lane.stall ? 2 : end - lane.stalledAt < RECENT_MS ? 1 : 0);
    const order = [...known.lanes.values()].sort((a, b) => rank(b) - rank(a) || b.since - a.since);
    for (const lane of known.lanes.values()) lane.row = -1;
    rows = order.slice(0, most).map((lane, index) => ((lane.row = index), [lane]));
  }
  sortedStalled = stalled;
}

function keepRows(most) {
  const start = known.lastT - span - RECENT_MS;
  rows = rows.map((row) => row.filter((lane) => !lane.over || lane.last > start));
  for (const lane of known.lanes.values()) {
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
export function prefillRows(view) {
  const isShown = (each) => each.since < view.end && (!each.until || each.until > view.start);
  const shown = [...known.pastPrefills, ...known.prefills.values()].filter(isShown).sort((a, b) => a.since - b.since);
  const ends = [];
  let hidden = 0;
  for (const each of shown) {
    let free = each.row >= 0 && !(ends[each.row] > each.since) ? each.row : 0;
    while (ends[free] > each.since) free += 1;
    each.row = free < MOST_PREFILL_ROWS ? free : -1;
    if (each.row < 0) hidden += 1;
    else ends[free] = each.until ? each.until + (isLong(each) ? view.ms(100) : 0) : Infinity;
  }
  return { shown: shown.filter((each) => each.row >= 0), hidden };
}
