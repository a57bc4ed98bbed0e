package main

import (
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// growths are what is measured for more and more of something on one name: the
// tables of the report, and the lines of its second chart.
var growths = []struct {
	title, label, prefix, column string
	color                        color.Color
}{
	{"Waiters on one name", "a hand-over, by waiters", "crowd-", "server", color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}},
	{"Readers beside others", "a reader's lock, by readers who hold", "holders-", "serverLock", color.RGBA{R: 0xff, G: 0x7f, B: 0x0e, A: 0xff}},
}

// growth draws the time that dlock takes of the server, as SVG.
func (b *bench) growth(w io.Writer) error {
	p := newPlot()
	p.X.Tick.Marker = powers{}
	p.X.Label.Text, p.Y.Label.Text = "waiters, or readers who hold", "µs of the server"
	p.Y.Min, p.Y.Max = 0, 1
	p.Add(plotter.NewGrid())
	for _, g := range growths {
		var line plotter.XYs
		for _, n := range b.sizes.crowds {
			for _, r := range b.rows {
				took := r.values[g.column].median() * 1e6
				if r.scenario.id == growing(g.prefix, n) && r.library.id == "dlock" && !math.IsNaN(took) {
					line = append(line, plotter.XY{X: math.Log10(float64(n)), Y: took})
				}
			}
		}
		if len(line) == 0 {
			continue
		}
		drawn, points, err := plotter.NewLinePoints(line)
		if err != nil {
			return err
		}
		drawn.Color, points.Color = g.color, g.color
		p.Add(drawn, points)
		p.Legend.Add(g.label, drawn, points)
		for _, at := range line {
			p.Y.Max = max(p.Y.Max, 1.3*at.Y)
		}
	}
	return writeSVG(w, p, vg.Length(240))
}
