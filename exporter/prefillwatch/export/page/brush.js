// The canvas: colours, hatching, text.

import { $ } from './words.js';

export const canvas = $('canvas');
export const paint = canvas.getContext('2d');
export const colours = {};
export let hatch = null;

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['card', 'soft', 'line', 'tick', 'stall', 'stall-soft', 'prefill', 'prefill-soft', 'band']) {
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

export function text(words, x, y, colour, font = '12px system-ui, sans-serif', align = 'left') {
  paint.font = font;
  paint.fillStyle = colour;
  paint.textAlign = align;
  paint.textBaseline = 'middle';
  paint.fillText(words, x, y);
}

const shortened = new Map();

export function shorten(words, room, size) {
  const key = `${size}${room}${words}`;
  let found = shortened.get(key);
  if (found === undefined) {
    if (shortened.size > 2000) shortened.clear();
    paint.font = `${size} system-ui, sans-serif`;
    found = words;
    if (paint.measureText(found).width > room) {
      // Of the middle: names that begin alike differ in their ends.
      const cut = (keep) => `${words.slice(0, Math.ceil(keep / 2))}…${words.slice(-Math.floor(keep / 2))}`;
      let keep = Math.min(words.length - 1, 40);
      while (keep > 4 && paint.measureText(cut(keep)).width > room) keep -= 1;
      found = cut(keep);
    }
    shortened.set(key, found);
  }
  return found;
}
