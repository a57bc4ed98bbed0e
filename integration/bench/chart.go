package main

import (
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// series are the bars of the chart: for each library one of each.
var series = []struct {
	label, scenario, column string
	color                   color.Color
}{
	{"uncontended, 512 goroutines: locks/s", "distinct-512", "locks", color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff}},
	{"one name, 16 goroutines: hand-overs/s", "one-name", "changes", color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}},
	{"one name, 4 × 4: hand-overs/s", "processes", "changes", color.RGBA{R: 0xff, G: 0x7f, B: 0x0e, A: 0xff}},
}

const (
	barWidth   = vg.Length(7)
	rowHeight  = vg.Length(34)
	chartWidth = vg.Length(640)
)

// chart draws the series as SVG. Bars are of logarithms, for a logarithmic axis
// has no zero for a bar to stand on.
func (b *bench) chart(w io.Writer) error {
	p := newPlot()
	p.X.Min, p.X.Max = 0, 1
	p.X.Tick.Marker = powers{}
	p.X.Label.Text = "per second"
	p.Legend.Top = true
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)

	var shown []library // the first is on top
	for _, l := range slices.Backward(libraries) {
		if slices.ContainsFunc(b.rows, func(r *row) bool { return r.library.id == l.id && b.charted(r) }) {
			shown = append(shown, l)
		}
	}
	for i, s := range series {
		var values plotter.Values
		for _, l := range shown {
			v := value(s.scenario, s.column, l.id)(b)
			values = append(values, logarithm(v))
		}
		if len(values) == 0 {
			continue
		}
		bars, err := plotter.NewBarChart(values, barWidth)
		if err != nil {
			return err
		}
		bars.Horizontal = true
		bars.Color, bars.LineStyle.Width = s.color, 0
		bars.Offset = barWidth * vg.Length(len(series)/2-i)
		p.Add(bars)
		p.Legend.Add(s.label, bars)
		p.X.Max = max(p.X.Max, slices.Max(values))
	}
	p.X.Max = math.Ceil(p.X.Max)
	var names []string
	for _, l := range shown {
		names = append(names, strings.Trim(l.name, "*"))
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.5, float64(len(shown))+0.4 // room for the legend

	return writeSVG(w, p, rowHeight*vg.Length(len(shown))+80)
}

func (b *bench) charted(r *row) bool {
	for _, s := range series {
		if r.scenario.id == s.scenario && !math.IsNaN(r.values[s.column].median()) {
			return true
		}
	}
	return false
}

// logarithm of a rate, 0 for less than one and for none.
func logarithm(x float64) float64 {
	if math.IsNaN(x) || x < 1 {
		return 0
	}
	return math.Log10(x)
}

// powers of ten are the ticks of logarithms.
type powers struct{}

func (powers) Ticks(least, most float64) (ticks []plot.Tick) {
	for e := math.Ceil(least); e <= most; e++ {
		ticks = append(ticks, plot.Tick{Value: e, Label: power(int(e))})
	}
	return ticks
}

// power is the e-th power of ten, short enough to stand beside the next.
func power(e int) string {
	units := []string{"", " k", " M", " G"}
	unit := min(e/3, len(units)-1)
	return "1" + strings.Repeat("0", e-3*unit) + units[unit]
}
