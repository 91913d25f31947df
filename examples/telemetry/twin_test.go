package main

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/pnp"
)

// A new interval counts from the moment at which it comes; what was due before stays due.
func TestThePaceFollowsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(4)
		p.begin()
		set := func(value string) pnp.Answer {
			return p.set(pnp.Property{Name: "interval", Value: json.RawMessage(value), Version: 7})
		}
		require.Equal(t, 1, p.now())
		time.Sleep(time.Second)
		require.Equal(t, 5, p.now())
		require.Equal(t, pnp.Answer{Status: pnp.OK, Value: 0.5}, set("0.5"))
		require.Equal(t, 5, p.now())
		time.Sleep(time.Second)
		require.Equal(t, 7, p.now())
		for _, bad := range []string{"0", "-1", "3601", `"fast"`, "{}"} {
			answer := set(bad)
			require.Equal(t, pnp.BadValue, answer.Status, bad)
			require.Equal(t, 0.5, answer.Value, "it goes on as before")
			require.NotEmpty(t, answer.Description)
		}
		time.Sleep(time.Second)
		require.Equal(t, 9, p.now())
		require.Equal(t, pnp.Answer{Status: pnp.Initial, Value: 0.25, Description: "the usual one"}, set("null"))
		time.Sleep(time.Second)
		require.Equal(t, 13, p.now())
	})
}
