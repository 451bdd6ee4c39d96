// Grafana publishes no heatmap component; this one draws ours in the same scheme of colours.
import { formattedValueToString, getValueFormat } from '@grafana/data';
import React, { useEffect, useRef } from 'react';

const LEFT = 58;
const BOTTOM = 22;
const TOP = 8;
const SHADES = ['#3a2510', '#7a3b06', '#b65508', '#e8750f', '#fd9c3f', '#fdc287', '#fee8d3'];

export function Heatmap({ panel, frames, width, height, range, theme }) {
  const canvas = useRef(null);
  useEffect(() => {
    const ratio = window.devicePixelRatio;
    canvas.current.width = width * ratio;
    canvas.current.height = height * ratio;
    const ctx = canvas.current.getContext('2d');
    ctx.scale(ratio, ratio);
    draw(ctx, panel, frames, width, height, range, theme);
  });
  return <canvas ref={canvas} style={{ width, height }} />;
}

// Cumulative buckets become one row each, as Grafana does with "format: heatmap"; empty ones at both ends are left out.
function bucketRows(frames) {
  const edges = frames
    .map((frame) => ({ edge: Number(frame.fields[1].labels.le.replace('+Inf', 'Infinity')), frame }))
    .sort((a, b) => a.edge - b.edge);
  const rows = edges.map(({ edge, frame }, i) => {
    const below = i ? edges[i - 1].frame.fields[1].values : [];
    const low = i ? edges[i - 1].edge : 0;
    return {
      low,
      high: edge,
      times: frame.fields[0].values,
      counts: frame.fields[1].values.map((value, j) => Math.max(0, value - (below[j] ?? 0))),
    };
  });
  const used = rows.map((row) => row.counts.some((count) => count > 1e-9));
  return rows.slice(Math.max(0, used.indexOf(true) - 1), used.lastIndexOf(true) + 2);
}

function draw(ctx, panel, frames, width, height, range, theme) {
  const rows = bucketRows(frames);
  const most = Math.max(...rows.flatMap((row) => row.counts));
  const cell = (height - BOTTOM - TOP) / rows.length;
  const perMs = (width - LEFT) / (range.to - range.from);
  const format = getValueFormat(panel.options.yAxis.unit);
  ctx.font = `12px ${theme.typography.fontFamily}`;
  ctx.fillStyle = theme.colors.text.primary;
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  const every = Math.ceil(16 / cell);
  rows.forEach((row, i) => {
    const y = height - BOTTOM - (i + 1) * cell;
    const step = row.times.length > 1 ? row.times[1] - row.times[0] : 1000;
    if (i % every === 0 && Number.isFinite(row.high)) {
      ctx.fillText(formattedValueToString(format(row.high)), LEFT - 6, y);
    }
    row.counts.forEach((count, j) => {
      if (count > 1e-9) {
        const share = Math.pow(count / most, panel.options.color.exponent);
        ctx.fillStyle = SHADES[Math.min(SHADES.length - 1, Math.floor(share * SHADES.length))];
        ctx.fillRect(LEFT + (row.times[j] - range.from) * perMs, y + 0.5, Math.max(1, step * perMs - 0.5), cell - 1);
      }
    });
    ctx.fillStyle = theme.colors.text.primary;
  });
  ctx.textAlign = 'center';
  for (let at = Math.ceil(range.from / 30000) * 30000; at < range.to - 10000; at += 30000) {
    ctx.fillText(new Date(at).toISOString().slice(11, 19), LEFT + (at - range.from) * perMs, height - BOTTOM / 2);
  }
}
