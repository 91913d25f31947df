package main

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// exposed returns the names and the labels on the page of a device that has sent a message, which
// the hub refused at first, and lost a connection.
func exposed(t *testing.T) (text string, names, labels map[string]bool) {
	t.Helper()
	handler, provider, err := page()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(t.Context())) })
	d, err := open(provider, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.close()) })
	require.NoError(t, d.client.Open(t.Context()))
	d.hub.Inject(fault.Fault{Kind: fault.ReleaseMessage})
	require.NoError(t, d.client.Send(t.Context(), &transport.Message{Body: []byte("{}")}))
	d.hub.Inject(fault.Fault{Kind: fault.CloseOnMessage, Condition: "amqp:connection:forced"})
	require.NoError(t, d.client.Send(t.Context(), &transport.Message{Body: []byte("{}")}))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code)
	text = answer.Body.String()
	names, labels = map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)\{(.*)\} `).FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = true
		}
	}
	return text, names, labels
}

func TestThePageHasTheCountersOfTheDevice(t *testing.T) {
	text, names, _ := exposed(t)
	require.Regexp(t, `(?m)^hubline_client_messages_acknowledged_total\{.*hubline_device_id="dev-1".*\} 2$`, text)
	require.Regexp(t, `(?m)^hubline_client_connection_state\{.*hubline_client_connection_state="connected".*\} 1$`, text)
	require.True(t, names["hubline_client_outage_duration_seconds"])
}

// dashboard is the part of Grafana's format that is checked.
type dashboard struct {
	Title  string `json:"title"`
	Panels []struct {
		Title   string `json:"title"`
		Type    string `json:"type"`
		GridPos struct {
			H, W, X, Y int
		} `json:"gridPos"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

// Each query of the dashboard asks for names and labels that the page has, and each name of the
// page but the target's own is shown.
func TestTheDashboardAsksForWhatThePageHas(t *testing.T) {
	raw, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(raw, &d))
	_, names, labels := exposed(t)

	variables := []string{"datasource"}
	var queries []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if strings.Contains(v.Query, "(") {
			queries = append(queries, v.Query)
		}
	}
	require.GreaterOrEqual(t, len(d.Panels), 8)
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	shown := map[string]bool{}
	for _, q := range queries {
		for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(q, -1) {
			require.True(t, strings.HasPrefix(m[1], "__") || slices.Contains(variables, m[1]), "%s: no variable %s", q, m[1])
		}
		requireNames(t, q, names, labels, shown)
	}
	for name := range names {
		if strings.HasPrefix(name, "hubline_") {
			require.True(t, shown[name], "the dashboard does not show %s", name)
		}
	}
}

// requireNames checks that a query asks for what the page has, and notes what that is.
func requireNames(t *testing.T, query string, names, labels, asked map[string]bool) {
	t.Helper()
	require.Equal(t, strings.Count(query, "("), strings.Count(query, ")"), query)
	all := regexp.MustCompile(`\b(hubline_\w+|error_type)\b`).FindAllString(query, -1)
	require.NotEmpty(t, all, query)
	for _, name := range all {
		require.True(t, names[name] || labels[name], "%s: the page has no %s", query, name)
		asked[name] = true
	}
}

// The three rules ask for what the page has, and fire when alerts_test.yml says so.
func TestTheAlertsFire(t *testing.T) {
	rules, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	_, names, labels := exposed(t)
	expressions := regexp.MustCompile(`(?ms)^        expr: (.*?)^        for:`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, expressions, 3)
	for _, e := range expressions {
		requireNames(t, e[1], names, labels, map[string]bool{})
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("HUBLINE_REQUIRE_PEERS") == "" {
		t.Skip("SKIPPED: promtool not found; that the alerts fire is NOT verified (Debian: apt-get install prometheus)")
	}
	require.NoError(t, err)
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
