// Draws one section of a dashboard from captured query results with Grafana's published components.
import {
  createTheme,
  dateTime,
  FieldType,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  ThemeContext,
  VizOrientation,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import React, { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import 'uplot/dist/uPlot.min.css';
import { framesOf, transformed, withOptions } from './fields.js';
import { Heatmap } from './heatmap.jsx';

const UNIT = 30;
const GAP = 8;
const { dashboard, frame, variables, results, annotations, section, width } = window.CAPTURED;
const theme = createTheme({ colors: { mode: 'dark' } });
const range = { from: frame.start * 1000, to: frame.end * 1000 };
const timeRange = { from: dateTime(range.from), to: dateTime(range.to), raw: { from: 'now-15m', to: 'now' } };
const named = (text) => text.replace(/\$(\w+)/g, (_, name) => variables[name] ?? name);

function Panel({ panel, top }) {
  const { x, y, w, h } = panel.gridPos;
  const column = (width + GAP) / 24;
  const box = { left: x * column, top: (y - top) * (UNIT + GAP), width: w * column - GAP, height: h * (UNIT + GAP) - GAP };
  const [frames, setFrames] = useState(null);
  useEffect(() => {
    transformed(panel, framesOf(panel, results[panel.id], frame.step)).then((found) =>
      setFrames(withOptions(panel, found, theme))
    );
  }, [panel]);
  return (
    <div style={{ position: 'absolute', ...box }}>
      <PanelChrome title={named(panel.title)} width={box.width} height={box.height}>
        {(innerWidth, innerHeight) => frames && draw(panel, frames, innerWidth, innerHeight)}
      </PanelChrome>
    </div>
  );
}

const DRAW = { timeseries: drawLines, stat: drawStat, bargauge: drawBars, heatmap: drawHeatmap, table: drawTable };

function draw(panel, frames, w, h) {
  const empty = frames.every((one) => one.length === 0 || one.fields.every((f) => f.type !== FieldType.number || f.values.every((v) => v === null)));
  if (empty && panel.type !== 'stat') {
    const style = { height: h, display: 'grid', placeItems: 'center', color: theme.colors.text.secondary };
    return <div style={style}>{panel.fieldConfig.defaults.noValue}</div>;
  }
  return DRAW[panel.type](panel, frames, w, h);
}

function drawLines(panel, frames, w, h) {
  return (
    <TimeSeries frames={frames} width={w} height={h} timeRange={timeRange} timeZone="utc" legend={panel.options.legend} options={panel.options}>
      {(builder) => {
        mark(builder, panel);
        return null;
      }}
    </TimeSeries>
  );
}

// Annotations: a line where each begins, and a bar under the plot as long as it lasts.
function mark(builder, panel) {
  builder.addHook('draw', (u) => {
    for (const { name, iconColor, filter } of dashboard.annotations.list) {
      if (filter && !filter.ids.includes(panel.id)) {
        continue;
      }
      for (const { values } of annotations[name] ?? []) {
        for (const [from, to] of stretches(values)) {
          const [left, right] = [u.valToPos(from * 1000, 'x', true), u.valToPos(to * 1000, 'x', true)];
          u.ctx.fillStyle = iconColor;
          u.ctx.fillRect(left, u.bbox.top, 1, u.bbox.height);
          u.ctx.fillRect(left, u.bbox.top + u.bbox.height, Math.max(2, right - left), 4);
        }
      }
    }
  });
}

function stretches(values) {
  const found = [];
  for (const [at] of values) {
    const last = found.at(-1);
    if (last && at - last[1] <= frame.step) {
      last[1] = at;
    } else {
      found.push([at, at]);
    }
  }
  return found;
}

function displayed(panel, frames) {
  return getFieldDisplayValues({
    fieldConfig: panel.fieldConfig,
    reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text,
    theme,
    data: frames,
    timeZone: 'utc',
  });
}

function repeated(panel, frames, w, h, orientation, renderValue) {
  const getValues = () => displayed(panel, frames);
  const sizes = { minVizWidth: 8, minVizHeight: 16, maxVizHeight: 60 };
  const getAlignmentFactors = getDisplayValueAlignmentFactors;
  const shared = { source: frames, renderCounter: 0, orientation, getValues, getAlignmentFactors, renderValue };
  return <VizRepeater {...shared} width={w} height={h} {...(panel.type === 'bargauge' ? sizes : { autoGrid: true })} itemSpacing={3} />;
}

function drawStat(panel, frames, w, h) {
  const { colorMode, graphMode, justifyMode, textMode } = panel.options;
  return repeated(panel, frames, w, h, VizOrientation.Auto, ({ value, width, height, count, alignmentFactors }) => (
    <BigValue
      value={value.display}
      {...{ colorMode, graphMode, justifyMode, textMode, theme, width, height, count, alignmentFactors }}
    />
  ));
}

function drawBars(panel, frames, w, h) {
  const { displayMode, valueMode, namePlacement, showUnfilled } = panel.options;
  return repeated(panel, frames, w, h, VizOrientation.Horizontal, ({ value, width, height, alignmentFactors }) => (
    <BarGauge
      value={value.display}
      display={value.view?.getFieldDisplayProcessor(value.colIndex)}
      field={value.field}
      orientation={VizOrientation.Horizontal}
      valueDisplayMode={valueMode}
      text={{ titleSize: 14, valueSize: 14 }}
      itemSpacing={3}
      {...{ displayMode, namePlacement, showUnfilled, theme, width, height, alignmentFactors }}
    />
  ));
}

function drawHeatmap(panel, frames, w, h) {
  return <Heatmap {...{ panel, frames, range, theme }} width={w} height={h} />;
}

function drawTable(panel, frames, w, h) {
  return <TableNG
      data={frames[0]}
      width={w}
      height={h}
      cellHeight={panel.options.cellHeight}
      fieldConfig={panel.fieldConfig}
      enableVirtualization={false}
      structureRev={1}
    />;
}

function Section() {
  const rows = dashboard.panels.filter((panel) => panel.type === 'row');
  const top = rows[section].gridPos.y;
  const bottom = rows[section + 1]?.gridPos.y ?? Infinity;
  const inside = dashboard.panels.filter(({ type, gridPos }) => type !== 'row' && gridPos.y > top && gridPos.y < bottom);
  return (
    <div style={{ position: 'relative', margin: GAP }}>
      <div style={{ fontSize: 16, fontWeight: 500, height: UNIT, color: theme.colors.text.primary }}>
        {dashboard.title} › {rows[section].title}
      </div>
      {inside.map((panel) => (
        <Panel key={panel.id} panel={panel} top={top} />
      ))}
    </div>
  );
}

document.body.style.background = theme.colors.background.canvas;
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <Section />
  </ThemeContext.Provider>
);
