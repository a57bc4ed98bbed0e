package etcdtest

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
)

// Metric returns what the member measures under this name, without labels. It
// fails the test if there is no such metric.
func (m *Member) Metric(name string) float64 {
	m.t.Helper()
	client := http.Client{Timeout: startTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + m.Endpoint + "/metrics")
	if err != nil {
		m.t.Fatalf("etcdtest: no metrics: %v", err)
	}
	defer reply.Body.Close()
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				m.t.Fatalf("etcdtest: metric %s is %q", name, text)
			}
			return value
		}
	}
	m.t.Fatalf("etcdtest: no metric %s", name)
	return 0
}

// Watchers is how many watches clients have at this member.
func (m *Member) Watchers() int {
	m.t.Helper()
	return int(m.Metric("etcd_debugging_mvcc_watcher_total"))
}
