package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a hub has acknowledged is stored and read, whatever the speed.
func TestDesk(t *testing.T) {
	for _, secure := range []bool{false, true} {
		r, err := Desk(t.Context(), DeskSettings{Devices: 50, Senders: 10, Keep: 1_000_000, Body: 100, Secure: secure,
			AMQP: secure, For: 200 * time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, r.Over())
		require.Positive(t, r.Acknowledged)
	}
	r, err := Desk(t.Context(), DeskSettings{Devices: 10, Senders: 10, Keep: 1_000_000, Body: 100, Rate: 2000,
		For: 400 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, r.Over())
	require.LessOrEqual(t, r.Acknowledged, 1280, "64 of each sender at the beginning, and 64 after 320 ms")
	require.Error(t, (&DeskReport{Acknowledged: 2, Stored: 2, Read: 1}).Over())
	require.Error(t, (&DeskReport{Acknowledged: 2, Stored: 1, Read: 2}).Over())
}
