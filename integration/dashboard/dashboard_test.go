// Package dashboard tests the dashboard of docs/grafana with a real Prometheus, and
// makes its picture with Grafana's own panels (npm install fetches them):
//
//	make dashboard-picture
package dashboard

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var write = flag.String("dashboard.write", "", "the file for the picture of the dashboard")

// board is what a dashboard's file says of its panels.
type board struct {
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	Title       string          `json:"title"`
	GridPos     json.RawMessage `json:"gridPos"`
	FieldConfig json.RawMessage `json:"fieldConfig"`
	Targets     []target        `json:"targets"`
}

// target is an expression, and the lines that it gives.
type target struct {
	Expr         string   `json:"expr"`
	LegendFormat string   `json:"legendFormat"`
	Series       []series `json:"series"`
}

func readBoard(t testing.TB) *board {
	text, err := os.ReadFile("../../docs/grafana/dlock.json")
	require.NoError(t, err)
	b := new(board)
	require.NoError(t, json.Unmarshal(text, b))
	require.NotEmpty(t, b.Panels)
	return b
}

// fill evaluates the expressions of all panels, with Grafana's variables replaced.
func (b *board) fill(s *server, from, to time.Time) {
	variables := strings.NewReplacer("$__rate_interval", fmt.Sprint(4*scrape), "$job", ".*")
	for i := range b.Panels {
		for j := range b.Panels[i].Targets {
			x := &b.Panels[i].Targets[j]
			x.Series = s.query(variables.Replace(x.Expr), from, to)
		}
	}
}

// shows reports whether the line has a value that is not zero.
func (s series) shows() bool {
	return slices.ContainsFunc(s.Points, func(p point) bool { return !math.IsNaN(p[1]) && p[1] != 0 })
}

// Each expression of the dashboard shows something of a service that takes locks, loses its
// store for a while, and loses a lock to an operator. With -dashboard.write there is more to
// see: minutes with one outage.
func TestEveryPanelShows(t *testing.T) {
	ttl, quiet, outage := time.Second, 2*scrape, 2*time.Second
	if *write != "" {
		ttl, quiet, outage = 3*time.Second, 50*time.Second, 8*time.Second
	}
	s := startService(t, ttl)
	p := startPrometheus(t, s.host)
	from := time.Now()
	s.hold(t, 60)
	time.Sleep(quiet)
	b := readBoard(t)
	for deadline := time.Now().Add(time.Minute); ; {
		s.outage(t, outage)
		time.Sleep(quiet)
		to := time.Now()
		b.fill(p, from, to)
		missing := b.missing()
		if len(missing) == 0 {
			if *write != "" {
				draw(t, map[string]any{"board": b, "from": from.UnixMilli(), "to": to.UnixMilli()})
			}
			return
		}
		require.True(t, time.Now().Before(deadline), "expressions that show nothing: %q", missing)
	}
}

// missing returns the expressions that show nothing, and the causes of losses that no
// expression shows.
func (b *board) missing() []string {
	var missing []string
	causes := map[string]bool{"deadline": true, "gone": true}
	for _, panel := range b.Panels {
		for _, x := range panel.Targets {
			if !slices.ContainsFunc(x.Series, series.shows) {
				missing = append(missing, panel.Title+": "+x.Expr)
			}
			for _, line := range x.Series {
				if line.shows() {
					delete(causes, line.Labels["dlock_loss_cause"])
				}
			}
		}
	}
	for cause := range causes {
		missing = append(missing, "losses by "+cause)
	}
	return missing
}

// draw makes a page with Grafana's panels, and a picture of it.
func draw(t *testing.T, data any) {
	out, err := filepath.Abs(*write)
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"package.json", "panels.jsx"} {
		text, err := os.ReadFile(filepath.Join("picture", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	text, err := json.Marshal(data)
	require.NoError(t, err)
	page := fmt.Sprintf(`<!DOCTYPE html><meta charset="utf-8"><title>dlock</title><link rel="stylesheet" href="panels.css"><div id="root"></div>
<script src="panels.js"></script><script>draw(%s)</script>`, text)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.html"), []byte(page), 0o600))
	run := func(program string, args ...string) {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", program, text)
	}
	run("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund")
	run("npx", "esbuild", "panels.jsx", "--bundle", "--minify", "--outfile=panels.js", `--define:process.env.NODE_ENV="production"`,
		"--loader:.svg=dataurl", "--loader:.woff2=dataurl", "--loader:.ttf=dataurl")
	run("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--window-size=1440,1276", "--virtual-time-budget=5000", "--screenshot="+out, "file://"+filepath.Join(dir, "index.html"))
}
