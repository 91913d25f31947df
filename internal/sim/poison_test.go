package sim_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// poisonedConn is the connection to a peer that resets it instead of taking a message with
// poisonMark in its id.
type poisonedConn struct {
	net.Conn
	resets bool
}

const poisonMark = "poison"

func (c *poisonedConn) Write(p []byte) (int, error) {
	if !c.resets && bytes.Contains(p, []byte(poisonMark)) {
		c.resets = true
		time.AfterFunc(10*time.Millisecond, func() { _ = c.Conn.Close() })
	}
	if c.resets {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func TestAPoisonMessageIsRefusedAndNoOther(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) {
		for name, poisons := range map[string][]int{
			"the first": {0}, "one in a batch": {7}, "two in a row": {7, 8}, "three": {3, 10, 17},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { poisonRun(t, e, poisons) })
			})
		}
	})
}

func poisonRun(t *testing.T, e engine, poisons []int) {
	testkit.StartClock()
	hub, creds := e.openHub(t)
	w := e.inMemory(hub, false)
	dial := w.Dial
	w.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &poisonedConn{Conn: c}, nil
	}
	c, err := device.New(creds, e.make(creds, w), nil)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Open(t.Context()))
	all := make([]device.Receipt, 20)
	var want []string
	for i := range all {
		id := strconv.Itoa(i)
		if slices.Contains(poisons, i) {
			id += "-" + poisonMark
		} else {
			want = append(want, id)
		}
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: id, Body: []byte("x")}, &all[i]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	require.NoError(t, c.Flush(ctx))
	for i := range all {
		if err := all[i].Wait(t.Context()); slices.Contains(poisons, i) {
			require.ErrorIs(t, err, transport.Poison, i)
		} else {
			require.NoError(t, err, i)
		}
	}
	got := map[string]bool{}
	for _, m := range e.messages(hub) {
		got[m.MessageID] = true
	}
	for _, id := range want {
		require.True(t, got[id], id)
	}
	require.Len(t, got, len(want))
}
