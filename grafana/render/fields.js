// Query results as Grafana's own data frames, with field options and overrides applied by Grafana's own code.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  dataLinksOverrideProcessor,
  FieldConfigOptionsRegistry,
  FieldType,
  identityOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  thresholdsOverrideProcessor,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';

const STANDARD = ['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'color', 'mappings'];
const LINES = ['axisPlacement', 'drawStyle', 'fillOpacity', 'lineInterpolation', 'lineStyle', 'lineWidth', 'pointSize'];
const MORE_LINES = ['scaleDistribution', 'showPoints', 'spanNulls', 'stacking', 'thresholdsStyle'];
const CELLS = ['align', 'cellOptions', 'inspect', 'minWidth', 'width'];

standardTransformersRegistry.setInit(() =>
  ['mergeTransformer', 'organizeFieldsTransformer', 'sortByTransformer']
    .map((name) => standardTransformers[name])
    .map((one) => ({ id: one.id, name: one.name, transformation: () => Promise.resolve(one) }))
);

// Every property that our panels may set; an unknown one stops the drawing instead of being ignored.
const registry = new FieldConfigOptionsRegistry(() => [
  ...STANDARD.map((path) => property(path, path, identityOverrideProcessor)),
  property('thresholds', 'thresholds', thresholdsOverrideProcessor),
  property('links', 'links', dataLinksOverrideProcessor),
  ...[...LINES, ...MORE_LINES, ...CELLS].map((path) => ({ ...property(`custom.${path}`, path, identityOverrideProcessor), isCustom: true })),
]);

function property(id, path, process) {
  return { id, path, name: id, process, override: () => null, editor: () => null, shouldApply: () => true };
}

export function framesOf(panel, results, step) {
  const { defaults, overrides } = panel.fieldConfig;
  const { custom, ...standard } = defaults;
  const ids = [
    ...Object.keys(standard),
    ...Object.keys(custom ?? {}).map((name) => `custom.${name}`),
    ...overrides.flatMap((one) => one.properties.map((property) => property.id)),
  ];
  const unknown = ids.filter((id) => !registry.getIfExists(id));
  if (unknown.length) {
    throw new Error(`panel ${panel.title}: unknown options ${unknown}`);
  }
  return panel.targets.flatMap((target) => {
    const series = results[target.refId];
    return target.format === 'table' ? tableOf(panel, target, series) : series.map((one) => seriesOf(target, one, step * 1000));
  });
}

// Transformations are asynchronous in Grafana too.
export function transformed(panel, frames) {
  const wanted = (panel.transformations ?? []).map(({ id, options }) => ({ id, options }));
  return new Promise((resolve) => transformDataFrame(wanted, frames).subscribe(resolve));
}

export function withOptions(panel, frames, theme) {
  const fields = applyFieldOverrides({
    data: frames,
    fieldConfig: panel.fieldConfig,
    fieldConfigRegistry: registry,
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(fields);
  return fields;
}

// The interval makes missing points gaps, as Grafana's data source does.
function seriesOf(target, { metric, values, value }, interval) {
  const points = values ?? [value];
  const name = legendOf(target.legendFormat, metric);
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: points.map(([at]) => at * 1000), config: { interval } },
      {
        name: 'Value',
        type: FieldType.number,
        labels: metric,
        values: points.map(([, text]) => numberOf(text)),
        config: { displayNameFromDS: name },
      },
    ],
  });
}

function tableOf(panel, target, series) {
  const labels = [...new Set(series.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const value = panel.targets.length > 1 ? `Value #${target.refId}` : 'Value';
  return [
    toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: series.map((one) => one.value[0] * 1000), config: {} },
        ...labels.map((label) => ({
          name: label,
          type: FieldType.string,
          values: series.map(({ metric }) => metric[label] ?? ''),
          config: {},
        })),
        { name: value, type: FieldType.number, values: series.map((one) => numberOf(one.value[1])), config: {} },
      ],
    }),
  ];
}

function legendOf(format, metric) {
  return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
}

function numberOf(text) {
  const number = text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text);
  return Number.isNaN(number) ? null : number;
}
