// The stream of events, and what is done when it breaks.

import { hear, known, noteTime, take } from './known.js';
import { $, say } from './words.js';

const SILENT_MS = 4000; // without news for so long the connection is taken for lost
const HIDDEN_MS = 20000; // nobody looks at a page that is hidden for so long
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 10000;

let source = null;
let heardAt = 0;
let wait = FIRST_WAIT_MS;
let retryTimer = 0;
let hiddenTimer = 0;
let show = {}; // what to do with figures and incidents

function connection(state, words) {
  document.documentElement.dataset.connection = state;
  $('connection').dataset.state = state;
  say($('connection'), words);
}

function alive() {
  if (known.recording === 'ended') connection('ended', 'recording ended');
  else connection('live', known.recording ? 'replay' : 'live');
}

export function listen(handlers) {
  show = handlers;
  connect();
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
    wait = FIRST_WAIT_MS;
    if (reloads(hello.version)) return;
    hear(hello);
    alive();
    show.figures(hello.figures);
    show.incidents(hello.incidents);
  });
  on('frame', (frame) => {
    alive();
    take(frame);
  });
  on('idle', () => known.recording !== 'ended' && connection('live', 'nothing new'));
  on('ended', () => {
    known.recording = 'ended';
    alive();
  });
  on('figures', show.figures);
  on('incidents', show.incidents);
  source.onerror = lost;
}

// A page of another release would misunderstand: it is loaded anew, but once, lest an odd cache make us go on for ever.
function reloads(version) {
  const key = 'prefillwatch-reloaded';
  const mine = document.querySelector('meta[name=version]').content;
  if (version === mine || sessionStorage.getItem(key) === version) return false;
  sessionStorage.setItem(key, version);
  location.reload();
  return true;
}

function lost() {
  connection('reconnecting', 'reconnecting …');
  if (source && source.readyState === EventSource.CLOSED) {
    // An answer that is no stream makes the browser give up; we do not.
    clearTimeout(retryTimer);
    retryTimer = setTimeout(connect, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
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

setInterval(() => {
  const isLive = document.documentElement.dataset.connection === 'live';
  if (source && isLive && performance.now() - heardAt > SILENT_MS) {
    connection('reconnecting', 'reconnecting …');
    heardAt = performance.now();
    connect();
  }
}, 1000);
