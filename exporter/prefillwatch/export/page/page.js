// The live page: everything that /api/live sends, drawn as fast as it pays.

import { readColours } from './brush.js';
import { listen } from './connection.js';
import { showFigures } from './figures.js';
import { showIncidents } from './incidents.js';
import { draw } from './lanes.js';
import { tellCounts } from './verdict.js';

const FASTEST_MS = 30;
const CALM_MS = 1000; // where motion is not wanted
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const root = document.documentElement;
let drawnAt = 0;
let cost = 0; // milliseconds that drawing takes, lately

function tick(at) {
  requestAnimationFrame(tick);
  const least = calm.matches ? CALM_MS : Math.max(FASTEST_MS, cost * 4);
  if (at - drawnAt < least || document.hidden) return;
  drawnAt = at;
  const before = performance.now();
  const view = draw();
  cost = cost * 0.8 + (performance.now() - before) * 0.2;
  root.dataset.frames = Number(root.dataset.frames ?? 0) + 1;
  tellCounts(view);
}

root.classList.add('js');
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', readColours);
readColours();
listen({ figures: showFigures, incidents: showIncidents });
requestAnimationFrame(tick);
