package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// pageAsked is a page of messages as a client receives it.
type pageAsked struct {
	n               []int
	next, forgotten int
}

func (p *program) page(query string) pageAsked {
	p.t.Helper()
	return p.read(p.good("GET", "/messages"+query, ""))
}

func (p *program) read(answer map[string]any) (got pageAsked) {
	p.t.Helper()
	for _, m := range answer["messages"].([]any) {
		n := m.(map[string]any)["n"].(float64)
		require.Equal(p.t, fmt.Sprint(n), m.(map[string]any)["messageId"])
		got.n = append(got.n, int(n))
	}
	got.next = int(answer["next"].(float64))
	if forgotten, there := answer["forgotten"]; there {
		require.NotZero(p.t, forgotten)
		got.forgotten = int(forgotten.(float64))
	}
	return got
}

// The numbers of messages do not change when older messages are forgotten, and an answer states how
// many are missing.
func TestKeep(t *testing.T) {
	p := start(t, "-keep", "5", "-device", "dev-1", "-device", "dev-2")
	c := map[int]*device.Client{0: p.client("dev-1", "mqtt", nil), 1: p.client("dev-2", "mqtt", nil)}
	require.NoError(t, c[0].Open(soon(t)))
	require.NoError(t, c[1].Open(soon(t)))
	send := func(from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, c[i%2].Send(soon(t), &transport.Message{ID: fmt.Sprint(i)}))
		}
	}
	send(0, 5)
	require.Equal(t, pageAsked{[]int{0, 1, 2, 3, 4}, 5, 0}, p.page(""))
	send(5, 12)
	for query, want := range map[string]pageAsked{
		"":                           {[]int{7, 8, 9, 10, 11}, 12, 7},
		"?from=3":                    {[]int{7, 8, 9, 10, 11}, 12, 4},
		"?from=6&limit=2":            {[]int{7, 8}, 9, 1},
		"?from=7":                    {[]int{7, 8, 9, 10, 11}, 12, 0},
		"?from=9&limit=2":            {[]int{9, 10}, 11, 0},
		"?from=12":                   {nil, 12, 0},
		"?from=20":                   {nil, 20, 0},
		"?from=1073741824":           {nil, 1073741824, 0},
		"?device=dev-1":              {[]int{8, 10}, 12, 7},
		"?device=dev-2&from=8":       {[]int{9, 11}, 12, 0},
		"/wait?count=5":              {[]int{7, 8, 9, 10, 11}, 12, 7},
		"/wait?count=2&from=10":      {[]int{10, 11}, 12, 0},
		"/wait?device=dev-2&count=2": {[]int{7, 9}, 10, 7},
	} {
		require.Equal(t, want, p.page(query), query)
	}
	require.Equal(t, "count", p.refused(400, "GET", "/messages/wait?count=6", "").Field)
	p.refused(504, "GET", "/messages/wait?from=12&within=10ms", "")
	p.refused(504, "GET", "/messages/wait?device=dev-2&count=4&within=10ms", "")

	waited := make(chan map[string]any)
	go func() {
		_, answer := p.ask("GET", "/messages/wait?from=12&count=3", "")
		waited <- answer
	}()
	send(12, 15)
	require.Equal(t, pageAsked{[]int{12, 13, 14}, 15, 0}, p.read(<-waited))

	require.NoError(t, c[0].Send(soon(t), &transport.Message{ID: "14", Body: []byte("other")}))
	pair := p.good("GET", "/conflicts", "")["conflicts"].([]any)[0].(map[string]any)
	require.Equal(t, 14.0, pair["first"].(map[string]any)["n"])
	require.Equal(t, 15.0, pair["second"].(map[string]any)["n"])

	p.good("POST", "/reset", "")
	require.Equal(t, pageAsked{nil, 0, 0}, p.page(""))
	send(0, 1)
	require.Equal(t, pageAsked{[]int{0}, 1, 0}, p.page(""))
}

// By default the log is limited; with -keep 0 nothing is forgotten.
func TestKeepFlag(t *testing.T) {
	var help bytes.Buffer
	for _, c := range []struct {
		args []string
		want int
	}{{nil, 100_000}, {[]string{"-keep", "0"}, 0}, {[]string{"-keep", "7"}, 7}} {
		s, err := parse(c.args, &help)
		require.NoError(t, err)
		require.Equal(t, c.want, s.keep)
	}
	_, err := parse([]string{"-keep", "-1"}, &help)
	require.ErrorContains(t, err, "flag -keep: -1 is negative; give")

	p := start(t, "-keep", "0", "-device", "dev-1")
	c := p.client("dev-1", "mqtt", nil)
	require.NoError(t, c.Open(soon(t)))
	const n = 300
	for i := range n {
		require.NoError(t, c.Send(soon(t), &transport.Message{ID: fmt.Sprint(i)}))
	}
	require.Len(t, p.page("").n, n)
}
