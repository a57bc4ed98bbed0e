package main

import (
	"bytes"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// newPlot returns an empty chart. Its font is as wide as Arial and Helvetica, one of
// which most browsers have: texts are placed by their widths.
func newPlot() *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = color.White
	p.Legend.Padding = 2
	p.Legend.TextStyle.Font.Size = 9
	return p
}

// writeSVG draws p into w, as high as height.
func writeSVG(w io.Writer, p *plot.Plot, height vg.Length) error {
	c := vgsvg.New(chartWidth, height)
	p.Draw(draw.Crop(draw.New(c), 4, -30, 4, -8)) // the last label is wider than its tick
	var drawn bytes.Buffer
	if _, err := c.WriteTo(&drawn); err != nil {
		return err
	}
	const family = "font-family:Liberation Sans"
	_, err := w.Write(bytes.ReplaceAll(drawn.Bytes(), []byte(family+";"), []byte(family+",Arial,Helvetica,sans-serif;")))
	return err
}
