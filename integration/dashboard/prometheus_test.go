package dashboard

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/porttest"
	"github.com/dlock-go/dlock/internal/process"
)

// scrape is how often Prometheus reads the metrics.
const scrape = time.Second

// server is a Prometheus that scrapes one page.
type server struct {
	t   testing.TB
	url string
}

// startPrometheus starts a Prometheus that scrapes target, a host with a port. It fails
// the test if there is none.
func startPrometheus(t testing.TB, target string) *server {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("Prometheus is not installed: run `apt-get install prometheus`, or `make test`, which does.")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("scrape_configs:\n- job_name: orders\n  scrape_interval: %s\n  scrape_timeout: %[1]s\n  static_configs:\n  - targets: [%q]\n",
		scrape, target)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	var p *process.Process
	s := &server{t: t}
	begin := func() {
		address := porttest.FreeAddrs(t, 1)[0]
		cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
		cmd.Stderr = log
		p, err = process.Start(cmd)
		require.NoError(t, err)
		s.url = "http://" + address
	}
	begin()
	t.Cleanup(func() {
		p.Kill()
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("Prometheus says: %s", text)
		}
	})
	require.Eventually(t, func() bool {
		if p.Ended() { // perhaps another program has bound the port
			begin()
		}
		reply, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return false
		}
		reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond, "Prometheus is not ready")
	return s
}

// series is one line of a panel.
type series struct {
	Labels map[string]string `json:"metric"`
	Points []point           `json:"values"`
}

// point is a time, in seconds since 1970, and a value.
type point [2]float64

// UnmarshalJSON reads what Prometheus writes: the value is in a string.
func (p *point) UnmarshalJSON(text []byte) error {
	var value string
	if err := json.Unmarshal(text, &[]any{&p[0], &value}); err != nil {
		return err
	}
	var err error
	p[1], err = strconv.ParseFloat(value, 64)
	return err
}

// MarshalJSON writes null for what is no number, such as a quantile of nothing.
func (p point) MarshalJSON() ([]byte, error) {
	if math.IsNaN(p[1]) || math.IsInf(p[1], 0) {
		return json.Marshal([]any{p[0], nil})
	}
	return json.Marshal([]float64{p[0], p[1]})
}

// query evaluates an expression for each second from one time to the other. It fails the
// test if Prometheus refuses the expression.
func (s *server) query(expr string, from, to time.Time) []series {
	s.t.Helper()
	reply, err := http.PostForm(s.url+"/api/v1/query_range", url.Values{
		"query": {expr}, "step": {"1"}, "start": {strconv.FormatInt(from.Unix(), 10)}, "end": {strconv.FormatInt(to.Unix(), 10)},
	})
	require.NoError(s.t, err)
	defer reply.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []series }
	}
	require.NoError(s.t, json.NewDecoder(reply.Body).Decode(&answer))
	require.Empty(s.t, answer.Error, "Prometheus refuses %s", expr)
	return answer.Data.Result
}
