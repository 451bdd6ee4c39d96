// How it is now, in words: the verdict above all, counts, and the table.

import { canvas } from './brush.js';
import { causeWords, known, noteNow, present } from './known.js';
import { $, count, duration, make, plural, row, say, sentence } from './words.js';

const EVERY_MS = 200;
const ALOUD_EVERY_MS = 1000; // what is not seen but read out
const RECENT_S = 15;
const MOST_IN_TABLE = 20;

let toldAt = 0;
let toldAloudAt = 0;

export function tellCounts(view) {
  if (performance.now() - toldAt < EVERY_MS) return;
  toldAt = performance.now();
  const root = document.documentElement.dataset;
  noteNow();
  root.frozen = known.now.frozen;
  root.decoding = known.now.decoding;
  const { decoding } = known.now;
  const all = decoding ? `${count(decoding)} decoding` : '';
  const some = `${count(view.shown)} of ${count(decoding)} shown, the affected first`;
  say($('lanes-count'), known.lanes.size > view.shown ? some : all);
  tellVerdict();
  if (performance.now() - toldAloudAt > ALOUD_EVERY_MS) {
    toldAloudAt = performance.now();
    canvas.setAttribute('aria-label', `${$('verdict-title').textContent}. ${$('verdict-more').textContent}`);
    if (document.querySelector('details').open) showTable();
  }
}

function latestFreeze() {
  return [...known.incidents.values()].find((each) => each.kind === 'freeze');
}

function tellVerdict() {
  const [level, title, more] = verdict();
  $('verdict').dataset.level = level;
  say($('verdict-title'), title);
  say($('verdict-more'), more);
  const mark = known.now.frozen ? `(${known.now.frozen} frozen) ` : '';
  if (document.title !== `${mark}prefillwatch`) document.title = `${mark}prefillwatch`;
}

function verdict() {
  const { now, figures } = known;
  if (!figures) return ['idle', 'Connecting …', ''];
  const { connection } = document.documentElement.dataset;
  if (connection === 'ended') {
    return ['idle', 'The recording has ended', 'All is as it was then. To see it happen, play it with --speed 1.'];
  }
  if (connection !== 'live') {
    const on = known.recording ? 'The replay was stopped.' : 'Answers stream on without it.';
    return ['down', 'No news from the observer', `${on} This page comes back by itself.`];
  }
  return frozen(now) ?? notServing(figures) ?? lately(now) ?? flowing(now);
}

function frozen(now) {
  if (!now.frozen) return null;
  const many = now.frozen > 2 || now.frozen * 4 > now.decoding;
  const silence = duration(now.silence + Math.max(0, present() - now.t) / 1000);
  const title = `${count(now.frozen)} of ${plural(now.decoding, 'stream')} frozen for ${silence}`;
  return [many ? 'frozen' : 'recent', title, ongoingWords()];
}

function lately(now) {
  const last = latestFreeze();
  const ago = last ? now.t / 1000 - (last.started_at + last.duration_seconds) : Infinity;
  if (ago >= RECENT_S) return null;
  const when = ago < 1.5 ? 'just now' : `${Math.round(ago)} s ago`;
  const title = `${plural(last.victims, 'stream')} froze for up to ${duration(last.worst_gap_seconds)}, ${when}`;
  return ['recent', title, blameWords(last)];
}

function notServing({ ready, reason }) {
  if (ready) return null;
  const title = reason.startsWith('draining') ? 'Draining' : 'Not serving';
  return ['down', title, `${sentence(reason)} ${stillWords()}`];
}

function flowing(now) {
  if (now.decoding) {
    const usual = now.clear ? `; a step without a prompt takes ${duration(now.clear)}` : '';
    const more = `Longest silence now ${duration(now.silence)}${usual}. ${waitingWords()}`;
    return ['good', `${plural(now.decoding, 'stream')} flowing`, more];
  }
  if (now.prefilling) {
    return ['good', `${plural(now.prefilling, 'prompt')} being read`, 'Nobody is decoding, so nobody can freeze.'];
  }
  return ['idle', 'No traffic now', 'Streams through the data port are shown here as they come.'];
}

const stillWords = () => (known.now.decoding ? `${plural(known.now.decoding, 'stream')} still flowing.` : '');
const waitingWords = () => (known.now.prefilling ? `${plural(known.now.prefilling, 'request')} in prefill.` : '');

function ongoingWords() {
  const ongoing = [...known.incidents.values()].find((each) => each.ongoing && each.kind === 'freeze');
  if (ongoing && ongoing.cause !== 'unattributed') return blameWords(ongoing);
  const served = [...known.prefills.values()].filter((each) => known.inService.has(each.number));
  if (!served.length) return 'No prompt is being read that would explain it.';
  return `Meanwhile a prompt of ${count(Math.max(...served.map((each) => each.tokens)))} tokens is being read.`;
}

function blameWords(incident) {
  const plain = sentence(causeWords(incident.cause));
  if (incident.cause !== 'prefill' || !incident.culprit_count) return plain;
  const first = incident.culprits[0];
  const were = incident.ongoing && known.now.frozen ? 'being read' : 'read';
  if (incident.culprit_count === 1 || first.share > 0.9) {
    const name = first.request_id && `, ${first.request_id}`;
    return `Cause: a prompt of ${count(first.prompt_tokens)} tokens ${were}${name}.`;
  }
  const most = first.request_id && `, most of it ${first.request_id}`;
  const prompts = `${count(incident.culprit_count)} prompts of ${count(incident.culprit_tokens)} tokens in all`;
  return `Cause: ${prompts} ${were}${most}.`;
}

function showTable() {
  const order = [...known.lanes.values()].sort((a, b) => a.last - b.last).slice(0, MOST_IN_TABLE);
  const body = $('table').tBodies[0];
  body.replaceChildren(
    ...order.map((lane) => {
      const silent = Math.max(0, known.lastT - lane.last) / 1000;
      const state = lane.stall ? `stalled: ${causeWords(lane.stall.cause)}` : 'flowing';
      return row(lane.name, make('td', count(lane.tokens)), make('td', duration(silent)), make('td', state));
    }),
  );
}
