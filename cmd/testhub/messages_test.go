package main

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

func TestTheNewestMessages(t *testing.T) {
	p := start(t, "-device", "a", "-device", "b", "-keep", "4")
	for i := range 6 {
		c := p.client([]string{"a", "b"}[i%2], "mqtt", nil)
		require.NoError(t, c.Open(soon(t)))
		require.NoError(t, c.Send(soon(t), &transport.Message{ID: fmt.Sprint(i), Body: []byte("größe")}))
		require.NoError(t, c.Close())
	}
	for query, want := range map[string][]any{
		"last=2":              {"4", "5"},
		"last=1&device=a":     {"4"},
		"last=9":              {"2", "3", "4", "5"},
		"last=9&device=b":     {"3", "5"},
		"last=9&from=4":       {"4", "5"},
		"last=2&from=5":       {"5"},
		"last=2&device=a":     {"2", "4"},
		"last=9&from=6":       nil,
		"limit=1&device=a":    {"2"},
		"from=0&limit=1":      {"2"},
		"last=1&body=3":       {"5"},
		"last=1&limit=3&body": nil,
	} {
		if query == "last=1&limit=3&body" {
			require.Equal(t, "body", p.refused(400, "GET", "/messages?"+query, "").Field)
			continue
		}
		answer := p.good("GET", "/messages?"+query, "")
		var got []any
		for _, m := range answer["messages"].([]any) {
			got = append(got, m.(map[string]any)["messageId"])
		}
		require.Equal(t, want, got, query)
		if query == "last=9" {
			require.NotContains(t, answer, "forgotten")
		}
	}
}

// A body is cut at a whole character, and the answer says how long it is.
func TestBodiesAreCut(t *testing.T) {
	for _, c := range []struct {
		body []byte
		most int
		want string // "" for bytes that are no text
		size int    // 0: not cut
	}{
		{[]byte("größe"), -1, "größe", 0}, {[]byte("größe"), 7, "größe", 0}, {[]byte("größe"), 6, "größ", 7},
		{[]byte("größe"), 3, "gr", 7}, {[]byte("größe"), 0, "", 7}, {nil, 0, "", 0},
	} {
		m := message{body: showBody(c.body)}
		m.cut(c.most)
		require.Equal(t, []any{c.want, c.size}, []any{*m.Body, m.Bytes}, "%q %d", c.body, c.most)
	}
	binary := []byte{0xff, 1, 2, 3, 4, 5, 6}
	for most, want := range map[int][]byte{-1: binary, 7: binary, 6: binary[:6], 5: binary[:3], 0: {}} {
		m := showMessage(&hubdata.Message{Body: binary})
		m.cut(most)
		got, err := base64.StdEncoding.DecodeString(*m.BodyBase64)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, len(want) < len(binary), m.Bytes == len(binary))
	}
}

// Each log of the API can be asked for its newest entries.
func TestTheNewestEntriesOfALog(t *testing.T) {
	p := start(t, "-device", "a", "-gateway", "localhost", "-module", "a/cam", "-keep", "4")
	for i := range 6 {
		p.good("POST", "/devices/a/c2d", fmt.Sprintf(`{"messageId":"%d"}`, i))
		p.good("POST", "/devices/a%2Fcam/inputs/in", fmt.Sprintf(`{"messageId":"%d"}`, i))
		p.refused(404, "POST", "/devices/a/methods", fmt.Sprintf(`{"name":"%d"}`, i))
	}
	for path, of := range map[string]struct{ list, field string }{
		"/devices/a/c2d": {"c2d", "messageId"}, "/devices/a%2Fcam/inputs": {"inputs", "messageId"},
		"/devices/a/methods": {"calls", "name"},
	} {
		for query, want := range map[string][]any{"": {"2", "3", "4", "5"}, "?last=2": {"4", "5"},
			"?last=9": {"2", "3", "4", "5"}} {
			var got []any
			for _, one := range p.good("GET", path+query, "")[of.list].([]any) {
				got = append(got, one.(map[string]any)[of.field])
			}
			require.Equal(t, want, got, path+query)
		}
		require.Equal(t, "last", p.refused(400, "GET", path+"?last=0", "").Field)
	}
	require.Empty(t, p.good("GET", "/uploads?last=1", "")["uploads"])
	require.Equal(t, "last", p.refused(400, "GET", "/uploads?last=0", "").Field)
	require.Equal(t, []int{1, 2, 3}, lastOf([]int{1, 2, 3}, 0))
}
