package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport/netopt"
)

// Connections are cut after a random time of the given mean, and the network is away afterwards. A
// connection that is closed in time is not cut.
func TestConnectionsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			device, _ := net.Pipe()
			return device, nil
		}
		f := &faults{every: time.Minute, away: 10 * time.Second}
		network, other := f.network(netopt.Options{Dial: dial}), f.network(netopt.Options{Dial: dial})
		connect := func(n netopt.Options) (net.Conn, error) { return n.Dial(t.Context(), "tcp", "hub:8883") }
		const cuts = 500
		began := time.Now()
		for n := range cuts {
			conn, err := connect(network)
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 1)) // waits
			require.ErrorIs(t, err, io.ErrClosedPipe)
			_, err = connect(network)
			require.ErrorIs(t, err, errAway)
			conn, err = connect(other)
			require.NoError(t, err, "each device has a network of its own")
			require.NoError(t, conn.Close())
			time.Sleep(f.away)
			require.EqualValues(t, n+1, f.cuts.Load())
		}
		// The sum of 500 exponential times has a standard deviation of 4.5 % of its mean.
		require.InEpsilon(t, time.Minute+f.away, time.Since(began)/cuts, .2)
		conn, err := connect(network)
		require.NoError(t, err)
		f.ended.Store(true)
		time.Sleep(24 * time.Hour)
		require.EqualValues(t, cuts, f.cuts.Load(), "none after the end")
		require.NoError(t, conn.Close())
	})
}

// Cuts lose no message. The hub counts connects, so the process ends after 20 cuts at least.
func TestCutsLoseNothing(t *testing.T) {
	t.Parallel() // it waits most of the time
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be asked to end")
	}
	const count = 10
	hub := testhub(t, count)
	var connects struct{ ID int }
	ask(t, hub+"/faults", `{"kind":"SlowConnack","times":-1}`, &connects)
	w := start(t, 0, "-hub", hub, "-count", fmt.Sprint(count), "-rate", "20", "-spread", "50ms", "-cut", "500ms",
		"-away", "20ms", "-duration", "0")
	ask(t, fmt.Sprintf("%s/faults/%d/wait?count=%d&within=1m", hub, connects.ID, 3*count), "", &struct{}{})
	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	c, ids := w.end(t)
	require.GreaterOrEqual(t, c.Cuts, int64(2*count))
	require.GreaterOrEqual(t, c.Attempts, uint64(3*count))
	require.Equal(t, c.Sent, len(ids))
	at := messageIDs(t, hub)
	for _, id := range ids {
		require.Contains(t, at, id)
	}
	require.Len(t, at, len(ids))
}

// Without the flag nothing is around the connections.
func TestWithoutCutsTheNetworkStays(t *testing.T) {
	require.Nil(t, new(faults).network(netopt.Options{}).Dial)
}
