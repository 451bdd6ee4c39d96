// Percentiles, the KV cache and the advice, once a second.

import { known } from './known.js';
import { showTenants } from './tenants.js';
import { $, count, duration, isNumber, make, percent, plural, row, say, windowWords } from './words.js';

let chosenModel = '';

export function showFigures(news) {
  known.figures = news;
  say($('server'), news.server ? `in front of ${news.server === 'vllm' ? 'vLLM' : news.server}` : '');
  const names = news.models.map((each) => each.model);
  chooseAmong(names);
  const model = news.models.find((each) => each.model === chosenModel) ?? news.models[0];
  showGaps(news.windows, model);
  showFirstTokens(news.windows, model);
  showEngines(news);
  showPressures(model);
  showAdvice(model?.advice);
  showTenants(news.tenants);
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
  if (known.figures) showFigures(known.figures);
});

function showGaps(windows, model) {
  const body = $('gaps').querySelector('tbody');
  let note = 'No gap between tokens was seen yet.';
  const lines = windows.map((name, index) => {
    const values = model?.gap_p99[index] ?? [null, null, null];
    const [, during, clear] = values;
    const longer = isNumber(during) && isNumber(clear) && during > known.limits.interference * clear;
    if (longer) note = longerWords(during / clear, name);
    else if (isNumber(during)) note = 'So far prompts hardly made the gaps of others longer.';
    else if (isNumber(clear)) note = 'No prompt was being read meanwhile.';
    const cells = values.map((value) => make('td', duration(value)));
    if (longer && during >= known.rule[0]) cells[1].className = 'high';
    return row(windowWords(name), ...cells);
  });
  body.replaceChildren(...lines);
  say($('gaps-note'), note);
}

function longerWords(times, window) {
  const much = times.toFixed(times < 10 ? 1 : 0);
  return `While a prompt was being read, the p99 gap was ${much} times as long (${windowWords(window)}).`;
}

function showFirstTokens(windows, model) {
  const measured = model?.first_token_p99 ?? [];
  let index = Math.min(1, windows.length - 1); // a minute; longer where that has nothing
  while (index < windows.length - 1 && !measured.some(([, values]) => isNumber(values[index]))) index += 1;
  const seen = measured.filter(([, values]) => isNumber(values[index]));
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
  const reporting = news.engines.filter((each) => isNumber(each.used));
  $('cache').querySelector('.empty').hidden = reporting.length > 0;
  const shown = reporting.slice(0, 4).map((engine) => showEngine(engine, news.windows, reporting.length > 1));
  const more = reporting.length - shown.length + news.more_engines;
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
  meter.dataset.level = engine.used > known.limits.kv_usage ? 'high' : 'usual';
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
  const { free_tokens: free, capacity_tokens: capacity } = engine;
  if (isNumber(free)) facts.push(`room for ${count(free)} of ${count(capacity)} tokens`);
  if (isNumber(engine.running)) facts.push(`${count(engine.running)} running, ${count(engine.waiting ?? 0)} waiting`);
  if (isNumber(engine.preemptions)) facts.push(plural(engine.preemptions, 'preemption'));
  box.append(line, meter, make('p', facts.join(' · ')));
  return box;
}

// 1 is a promise that is just kept: of load, which more replicas share, and of prompts in steps, which they do not shorten.
function showPressures(model) {
  const { capacity_pressure: capacity, interference_pressure: interference } = model ?? {};
  const told = isNumber(capacity) && isNumber(interference);
  $('pressures').hidden = !told;
  if (!told) return;
  const wanted = [];
  if (capacity > 1) wanted.push('more replicas');
  if (interference > 1) wanted.push('a smaller step, which more replicas do not replace');
  const words = wanted.length ? `wanted: ${wanted.join(', and ')}` : 'the promises are kept';
  say($('pressures'), `Load ${capacity.toFixed(2)}, prompts in steps ${interference.toFixed(2)} of what is promised: ${words}.`);
}

function showAdvice(advice) {
  const tokens = advice?.advised_max_batched_tokens;
  $('advised').hidden = !isNumber(tokens);
  say($('advised'), isNumber(tokens) ? `--max-num-batched-tokens ${tokens}` : '');
  const words = advice?.words.replace(/^max_num_batched_tokens=\S+/, 'this');  // the line above has it, as a flag
  say($('advice-words'), advice ? `${words}.` : 'no advice yet: no engine step with a prompt in it was seen.');
}
