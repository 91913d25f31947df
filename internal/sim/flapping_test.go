package sim_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// A link is reset 20 times while 10,000 messages are sent at 500 a second, with default options.
// Sending takes 20 s. The resets may add half of that.
func TestALinkThatFlapsAndMakesProgressIsNotPunished(t *testing.T) {
	withEachEngine(t, aLinkThatFlapsAndMakesProgressIsNotPunished)
}

func aLinkThatFlapsAndMakesProgressIsNotPunished(t *testing.T, with engine) {
	const messages, resets, rate = 10_000, 20, 500
	testkit.In2030(t, func(t *testing.T) {
		hub, creds := with.openHub(t)
		c, err := device.New(creds, with.make(creds, with.inMemory(hub, false)), nil)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Open(t.Context()))
		start := time.Now()
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			for i := 1; i <= resets; i++ {
				if hub.WaitMessages(t.Context(), i*messages/(resets+1)) == nil {
					hub.Drop("")
				}
			}
		}()
		body := make([]byte, 100)
		for i := range messages {
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: body}, nil))
			time.Sleep(time.Second / rate)
		}
		require.NoError(t, c.Flush(t.Context()))
		<-cut
		require.LessOrEqual(t, time.Since(start), 30*time.Second)
		require.GreaterOrEqual(t, c.Stats().Connections, uint64(resets/2), "the link was reset")
	})
}

// A link breaks at fixed times, up to ten times a second. The client is connected nearly as much as
// one that dials at once, keeps the order and loses nothing.
func TestALinkThatBreaksManyTimesASecond(t *testing.T) {
	periods := []time.Duration{100, 200, 400, 600}
	if !*all {
		periods = periods[:1]
	}
	for _, every := range periods {
		every *= time.Millisecond
		t.Run(every.String(), func(t *testing.T) {
			withEachEngine(t, func(t *testing.T, e engine) {
				synctest.Test(t, func(t *testing.T) { breaksOften(t, e, every) })
			})
		})
	}
}

func breaksOften(t *testing.T, e engine, every time.Duration) {
	const resets, rate = 40, 500
	testkit.StartClock()
	hub, creds := e.openHub(t)
	c, err := device.New(creds, e.make(creds, e.inMemory(hub, false)), nil)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Open(t.Context()))
	start := time.Now()
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		for range resets {
			time.Sleep(every)
			hub.Drop("")
		}
	}()
	messages := int(resets * every * rate / time.Second)
	body := make([]byte, 100)
	for i := range messages {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: body}, nil))
		time.Sleep(time.Second / rate)
	}
	require.NoError(t, c.Flush(t.Context()))
	ideal := resets * every
	require.LessOrEqual(t, time.Since(start), ideal*3/2)
	<-broken
	last := -1
	seen := make(map[int]bool)
	for _, m := range e.messages(hub) {
		i, err := strconv.Atoi(m.MessageID)
		require.NoError(t, err)
		if !seen[i] {
			require.Equal(t, last+1, i, "in order")
			last, seen[i] = i, true
		}
	}
	require.Len(t, seen, messages)
	t.Logf("%v of %v, %d connections", time.Since(start), ideal, c.Stats().Connections)
}

// Two clients with one identity end each other's connections. Both learn why: the peer says so, or,
// over MQTT 3.1.1, where it cannot, the pattern does.
func TestASecondClientOfTheSameIdentityIsTheSuspect(t *testing.T) {
	for name, sends := range map[string]bool{"idle": false, "sending": true} {
		t.Run(name, func(t *testing.T) {
			withEachEngine(t, func(t *testing.T, e engine) {
				if e.protocol == hubdata.HTTP {
					t.Skip("SKIPPED: HTTPS has no connection that a second client takes over")
				}
				if e.next {
					t.Skip("the hub says so, and the first one ends")
				}
				synctest.Test(t, func(t *testing.T) { aSecondClientIsTheSuspect(t, e, sends) })
			})
		})
	}
}

func aSecondClientIsTheSuspect(t *testing.T, e engine, sends bool) {
	testkit.StartClock()
	hub, creds := e.openHub(t)
	var clients [2]*device.Client
	for i := range clients {
		var losses int
		var last device.Status
		c, err := device.New(creds, e.make(creds, e.inMemory(hub, false)), &device.Options{OnStatus: func(s device.Status) {
			if s.State == device.StateDisconnectedRetrying && s.Err != nil {
				losses, last = losses+1, s
			}
		}})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, c.Close())
			require.GreaterOrEqual(t, losses, 3)
			require.Contains(t, last.Hint(), "the same device id", "%v, after %d losses", last, losses)
		})
		require.NoError(t, c.HandleMessages(func(context.Context, *transport.Message) error { return nil }))
		require.NoError(t, c.Start())
		clients[i] = c
	}
	for range time.Minute / time.Second {
		for _, c := range clients {
			if sends {
				require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil))
			}
		}
		time.Sleep(time.Second)
	}
}

// Two devices with one client id take the session from each other. That does not go at full speed,
// although each connection was useful.
func TestDevicesThatShareAClientIDDoNotFightAtFullSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engineNamed(t, "mqtt, MQTT 5")
		hub, creds := e.openHub(t)
		var connects atomic.Int32
		var both []*device.Client
		for range 2 {
			c, err := device.New(creds, e.make(creds, e.inMemory(hub, false)), &device.Options{OnStatus: func(s device.Status) {
				if s.State == device.StateConnected {
					connects.Add(1)
				}
			}})
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			both = append(both, c)
		}
		for range 600 {
			time.Sleep(time.Second)
			for _, c := range both {
				_ = c.Enqueue(t.Context(), &transport.Message{}, nil)
			}
		}
		t.Logf("%d connections in 10 minutes", connects.Load())
		require.Greater(t, connects.Load(), int32(10))
		require.LessOrEqual(t, connects.Load(), int32(2+2*600/10))
	})
}
