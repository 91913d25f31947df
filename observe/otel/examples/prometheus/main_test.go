package main

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// exposed returns the names and the labels on the page of a device that has sent a message.
func exposed(t *testing.T) (text string, names, labels map[string]bool) {
	t.Helper()
	hub, client, err := connect()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hub.Close()) })
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Open(t.Context()))
	require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("{}")}))
	handler, end, err := page("dev-1", client)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end()) })
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
	require.Regexp(t, `(?m)^hubline_client_messages_acknowledged_total\{.*hubline_device_id="dev-1".*\} 1$`, text)
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
		require.Equal(t, strings.Count(q, "("), strings.Count(q, ")"), q)
		for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(q, -1) {
			require.True(t, strings.HasPrefix(m[1], "__") || slices.Contains(variables, m[1]), "%s: no variable %s", q, m[1])
		}
		found := 0
		for _, name := range regexp.MustCompile(`\bhubline_\w+`).FindAllString(q, -1) {
			require.True(t, names[name] || labels[name], "%s: the page has no %s", q, name)
			shown[name] = true
			found++
		}
		require.Positive(t, found, q)
	}
	for name := range names {
		if strings.HasPrefix(name, "hubline_") {
			require.True(t, shown[name], "the dashboard does not show %s", name)
		}
	}
}
