// The list of incidents, the newest first, and those that are spoken.

import { HISTORY_MS, causeWords, known } from './known.js';
import { setPaused, span } from './view.js';
import { $, clock, count, duration, make, percent, plural, say, sentence } from './words.js';

const MOST_KEPT = 60;
const MOST_CULPRITS = 3;
const ANNOUNCE_EVERY_MS = 10000;

let announcedAt = 0;
let announcements = [];
let firstList = true;

export function showIncidents(list) {
  const closed = [];
  for (const incident of list) {
    const before = known.incidents.get(incident.id);
    if (!incident.ongoing && (!before || before.ongoing)) closed.push(incident);
  }
  const sent = new Set(list.map((each) => each.id));
  for (const [id, incident] of known.incidents) if (incident.ongoing && !sent.has(id)) known.incidents.delete(id);
  for (const incident of list) known.incidents.set(incident.id, incident);
  const order = [...known.incidents.values()].sort((a, b) => b.started_at - a.started_at).slice(0, MOST_KEPT);
  known.incidents = new Map(order.map((each) => [each.id, each]));
  if (!firstList) announcements.push(...closed);
  firstList = false;
  renderIncidents();
  announce();
}

function renderIncidents() {
  const list = $('incident-list');
  const items = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const order = [...known.incidents.values()].map((incident) => {
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
  const lasting = order.length ? [...known.incidents.values()].filter((each) => each.ongoing).length : 0;
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
  else if (incident.cause !== 'prefill') item.append(make('p', sentence(causeWords(incident.cause)), 'who'));
  const story = make('a', 'The whole story');
  story.href = `explain?id=${encodeURIComponent(incident.id)}`;
  item.append(story, ' ');
  const wasSeen = (incident.started_at + incident.duration_seconds) * 1000 > known.since;
  if (!incident.ongoing && wasSeen) item.append(showButton(incident));
}

function victimWords(incident) {
  const { victims, decoding, baseline_gap_seconds: baseline } = incident;
  const worst = duration(incident.worst_gap_seconds);
  if (incident.kind !== 'freeze') return `${plural(victims, 'request')} waited up to ${worst} for a first token.`;
  // Over a long freeze streams come and go: there can be more victims than streams at any moment.
  const who = `${count(victims)} of ${plural(Math.max(victims, decoding), 'stream')}`;
  const usual = baseline ? `, usually ${duration(baseline)}` : '';
  return `${who}. Worst gap ${worst}${usual}; ${duration(incident.stall_seconds)} lost in all.`;
}

function culprits(incident) {
  const list = make('ul');
  for (const each of incident.culprits.slice(0, MOST_CULPRITS)) {
    const about = each.prompt_tokens_source === 'usage' ? '' : '≈ ';
    const cached = each.prompt_tokens - each.uncached_prompt_tokens;
    const size = `${about}${count(each.prompt_tokens)} tokens${cached ? ` (${count(cached)} cached)` : ''}`;
    const line = make('li', `${size}, ${percent(each.share)} of the blame: `);
    line.append(make('code', each.request_id || (incident.ongoing ? 'its id is not known yet' : 'no id')));
    list.append(line);
  }
  const more = incident.culprit_count - MOST_CULPRITS;
  const all = count(incident.culprit_tokens);
  if (more > 0) list.append(make('li', `and ${count(more)} more, ${all} tokens in all`, 'who'));
  return list;
}

function showButton(incident) {
  const button = make('button', 'Show in lanes');
  button.type = 'button';
  button.addEventListener('click', () => {
    const middle = (incident.started_at + incident.duration_seconds / 2) * 1000;
    setPaused(Math.min(middle + span / 2, known.lastT));
    $('stage').focus();
  });
  button.hidden = known.lastT - incident.started_at * 1000 > HISTORY_MS;
  button.dataset.until = incident.started_at * 1000 + HISTORY_MS;
  return button;
}

setInterval(() => {
  for (const button of document.querySelectorAll('.incident button')) {
    button.hidden = Number(button.dataset.until) < known.lastT;
  }
  announce();
}, 2000);

// Spoken at most every ten seconds, and then once for all.
function announce() {
  if (!announcements.length || performance.now() - announcedAt < ANNOUNCE_EVERY_MS) return;
  announcedAt = performance.now();
  const worst = announcements.reduce((a, b) => (b.stall_seconds > a.stall_seconds ? b : a));
  const more = announcements.length > 1 ? ` And ${announcements.length - 1} more.` : '';
  const kind = worst.kind === 'freeze' ? 'Freeze' : 'Wait';
  say($('announcer'), `${kind}, ${causeWords(worst.cause)}: ${victimWords(worst)}${more}`);
  announcements = [];
}
