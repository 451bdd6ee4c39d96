// Which stretch of time is shown, and the controls for it.

import { HISTORY_MS, known, present } from './known.js';
import { $, say } from './words.js';

export let span = 10000;
export let pausedAt = 0; // 0: it goes on

export function setPaused(at) {
  pausedAt = at;
  $('pause').setAttribute('aria-pressed', String(Boolean(at)));
  say($('pause'), at ? 'Go on' : 'Pause');
}

const togglePause = () => setPaused(pausedAt ? 0 : present());
const oldest = () => known.lastT - HISTORY_MS + span;

function press(event) {
  const step = span / 10;
  if (event.key === ' ') togglePause();
  else if (event.key === 'ArrowLeft') setPaused(Math.max((pausedAt || present()) - step, oldest()));
  else if (event.key === 'ArrowRight' && pausedAt) setPaused(pausedAt + step < known.lastT ? pausedAt + step : 0);
  else if (event.key === 'Home') setPaused(oldest());
  else if (event.key === 'End') setPaused(0);
  else return;
  event.preventDefault();
}

$('pause').addEventListener('click', togglePause);
$('stage').addEventListener('keydown', press);
for (const choice of document.querySelectorAll('input[name=span]')) {
  const choose = () => (span = Number(choice.value) * 1000);
  choice.addEventListener('change', choose);
  if (choice.checked) choose();
}
