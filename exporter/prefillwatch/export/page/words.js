// How things are said, and how elements are made. Whatever comes from elsewhere is only ever set as text.

export const $ = (id) => document.getElementById(id);

export const count = (number) => Math.round(number).toLocaleString('en');
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;
export const isNumber = (value) => typeof value === 'number';

// A number and its unit stay on one line.
export function duration(seconds) {
  if (!isNumber(seconds)) return '–';
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}\u00a0ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)}\u00a0s`;
  if (seconds < 60) return `${seconds.toFixed(1)}\u00a0s`;
  return `${Math.floor(seconds / 60)}\u00a0min ${Math.round(seconds % 60)}\u00a0s`;
}

export const percent = (ratio) => (isNumber(ratio) ? `${(ratio * 100).toFixed(ratio < 0.0995 ? 1 : 0)} %` : '–');
export const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');
export const windowWords = (name) => name.replace(/s$/, ' s').replace(/m$/, ' min');

export function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function row(head, ...cells) {
  const line = make('tr');
  const first = make('th', head);
  first.scope = 'row';
  line.append(first, ...cells);
  return line;
}
export const sentence = (words) => words && `${words[0].toUpperCase()}${words.slice(1)}.`;
