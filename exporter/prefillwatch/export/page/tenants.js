// Who does it to whom, where tenants are told apart: a table of tenants, and a matrix of culprits and victims.

import { $, count, duration, make, percent, row } from './words.js';

export function showTenants(news) {
  $('tenants').hidden = !news;
  if (!news) return;
  showTable(news.tenants);
  showMatrix(news.tenant_matrix);
}

function showTable(tenants) {
  const lines = tenants.map((each) =>
    row(
      each.tenant,
      make('td', count(each.requests)),
      make('td', each.requests ? percent(each.requests_within_slo / each.requests) : '–'),
      make('td', duration(each.stall_seconds_caused)),
      make('td', duration(each.stall_seconds_suffered)),
      make('td', duration(each.gap_p99)),
      make('td', duration(each.first_token_p99)),
    ),
  );
  $('tenant-table').querySelector('tbody').replaceChildren(...lines);
}

function showMatrix({ culprits, victims, stall_seconds: seconds }) {
  $('tenant-matrix').hidden = !culprits.length;
  $('tenants').querySelector('.empty').hidden = culprits.length > 0;
  const most = Math.max(...seconds.flatMap((line, at) => line.filter((_, to) => culprits[at] !== victims[to])), 0);
  const head = make('tr');
  head.append(make('td', 'caused by ↓, suffered by →'));
  for (const victim of victims) {
    const cell = make('th', victim);
    cell.scope = 'col';
    head.append(cell);
  }
  $('tenant-matrix').querySelector('thead').replaceChildren(head);
  const lines = culprits.map((culprit, at) => row(culprit, ...seconds[at].map((value, to) => cellOf(value, most, culprit === victims[to]))));
  $('tenant-matrix').querySelector('tbody').replaceChildren(...lines);
}

function cellOf(value, most, itself) {
  const cell = make('td', value ? duration(value) : '–');
  if (itself) {
    cell.className = 'itself';
    cell.title = 'to itself';
  } else if (value && value === most) {
    cell.className = 'high';
  }
  return cell;
}
