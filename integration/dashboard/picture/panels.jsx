// Draws the panels of a dashboard, with their data, as Grafana draws them.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, FieldType, getDisplayProcessor, ThemeContext, toDataFrame } from '@grafana/data';
import { LegendDisplayMode, PanelChrome, TimeSeries } from '@grafana/ui';

const theme = createTheme({ colors: { mode: 'light' } });
const row = 38; // pixels, as in Grafana
const column = 1424 / 24;

// name is what the legend says of a line: {{label}} stands for the label's value.
const name = (format, labels) => format.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? '');

function frames(panel) {
  const defaults = panel.fieldConfig?.defaults ?? {};
  const lines = panel.targets.flatMap((target) => target.series.map((line) => ({ target, line })));
  return lines.map(({ target, line }, seriesIndex) => {
    const frame = toDataFrame({
      fields: [
        { name: 'Time', type: FieldType.time, values: line.values.map((p) => p[0] * 1000) },
        {
          name: name(target.legendFormat ?? '', line.metric), type: FieldType.number, values: line.values.map((p) => p[1]),
          config: { color: { mode: 'palette-classic' }, ...defaults, custom: { lineWidth: 1, fillOpacity: 10, showPoints: 'never', ...defaults.custom } },
        },
      ],
    });
    frame.fields.forEach((field) => {
      field.state = { seriesIndex };
      field.display = getDisplayProcessor({ field, theme });
    });
    return frame;
  });
}

window.draw = ({ board, from, to }) => {
  const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  const legend = { displayMode: LegendDisplayMode.List, placement: 'bottom', showLegend: true, calcs: [] };
  document.body.style.cssText = `margin:0;background:${theme.colors.background.canvas};font-family:${theme.typography.fontFamily};color:${theme.colors.text.primary}`;
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <h1 style={{ fontSize: 18, margin: '14px 16px 0', height: 34 }}>{board.title}</h1>
      <div style={{ position: 'relative' }}>
        {board.panels.map((panel) => (
          <div key={panel.title} style={{ position: 'absolute', left: panel.gridPos.x * column + 8, top: panel.gridPos.y * row }}>
            <PanelChrome title={panel.title} width={panel.gridPos.w * column - 8} height={panel.gridPos.h * row - 8}>
              {(width, height) => (
                <TimeSeries width={width} height={height} frames={frames(panel)} timeRange={range} timeZone="utc" legend={legend} />
              )}
            </PanelChrome>
          </div>
        ))}
      </div>
    </ThemeContext.Provider>,
  );
};
