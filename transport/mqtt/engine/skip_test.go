package engine

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// topics are the options for a plain broker.
func topics() *Options {
	return &Options{Dialect: &dialect.Topics{Telemetry: "up", Commands: []string{"down/#"}}}
}

// startPlain starts a session with a plain broker.
func startPlain(t testing.TB, h *hub, tr *Transport) (*running, *link) {
	var l *link
	s, k, ctx, cancel, err := dialedAs(t, tr, &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"},
		func() { l = h.welcome() })
	require.NoError(t, err)
	return &running{s.(*session), k, k.Run(t, ctx, s, cancel), cancel}, l
}

// large returns a PUBLISH that is a byte larger than a session takes.
func large(topic string, id uint16) []byte {
	head := 2 + len(topic)
	if id != 0 {
		head += 2
	}
	return publishBytes(topic, id, strings.Repeat("x", maxIncoming+1-head))
}

// A plain broker would send a message that is too large on each connection. It is skipped and
// acknowledged, whatever its topic, and only the longest topic takes room.
func TestALargePublishIsSkipped(t *testing.T) {
	long := "down/" + strings.Repeat("t", mqttwire.MaxText-len("down/"))
	for name, c := range map[string]struct {
		topic string
		id    uint16
		unfit string
	}{
		"QoS 1":          {"down/a", 7, "down/a \x00\x07"},
		"QoS 0":          {"down/a", 0, "down/a "},
		"a long topic":   {long, 7, long + " \x00\x07"},
		"not subscribed": {"other", 7, ""},
		"a filter":       {"down/#", 7, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				h.net.SetBuffer(0)
				tr := New(h.dial, topics())
				r, l := startPlain(t, h, tr)
				versions["3.1.1"].subscribe(r, l)
				l.Send(publishBytes("down/a", 1, "before")...)
				packet := large(c.topic, c.id)
				for _, part := range [][]byte{packet[:3], packet[3:80_000], packet[80_000:]} {
					l.Send(part...)
					synctest.Wait()
					require.LessOrEqual(t, len(tr.in), mqttwire.MaxHead+minRead)
				}
				l.Send(append(publishBytes("down/a", 2, "behind"), 0xD0, 0)...)
				synctest.Wait()
				require.Equal(t, []string{"before", "behind"}, r.sink.Bodies())
				require.LessOrEqual(t, len(tr.in), maxRead)
				var want []string
				if c.unfit != "" {
					want = []string{c.unfit}
				}
				require.Equal(t, want, r.sink.Unfit)
				if c.unfit == "" {
					require.Equal(t, [][]byte{{0, 7}}, r.sink.Unasked, "the engine has it accepted")
				}
				r.Do(&transport.Request{Op: transport.OpSettle, Ref: []byte{0, 7}, Outcome: transport.OutcomeReject})
				require.Equal(t, []byte{0, 7}, l.Expect(0x40).Body)
				require.Empty(t, r.ran)
			})
		})
	}
}

// One that breaks the protocol ends the session, as any other does.
func TestALargePublishThatBreaksTheProtocol(t *testing.T) {
	qos2 := large("down/a", 7)
	qos2[0] = 0x34
	for text, packet := range map[string][]byte{"QoS above 1": qos2,
		"packet id 0": append([]byte{0x32}, large("down/a", 0)[1:]...)} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			h.net.SetBuffer(0)
			r, l := startPlain(t, h, New(h.dial, topics()))
			if text == "packet id 0" {
				copy(packet[4+2+len("down/a"):], "\x00\x00")
			}
			l.Send(packet...)
			require.ErrorContains(t, r.requireLoss(t, transport.Network), text)
		})
	}
}

// It waits where all messages wait: for Run, for a subscription, and for room.
func TestALargePublishWaitsForRoom(t *testing.T) {
	for name, o := range map[string]*Options{"growing buffers": new(Options),
		"a board": {ReadBuffer: 256, WriteBuffer: 1024}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				h.net.SetBuffer(0)
				r, l := born(t, h, o, append(large("down", 1), publishBytes("down", 2, "small")...))
				setFull(r.sink, true) // no handler
				versions["3.1.1"].subscribe(r, l)
				l.Send(large("down", 3)...)
				synctest.Wait()
				setFull(r.sink, false)
				r.Do(&transport.Request{Op: transport.OpSettle})
				require.Equal(t, []string{"small"}, r.sink.Bodies())
				require.Equal(t, []string{"down \x00\x01", "down \x00\x03"}, r.sink.Unfit)
				for i, ref := range [][]byte{{0, 1}, {0, 2}, {0, 3}} {
					r.Do(&transport.Request{Op: transport.OpSettle, Ref: ref})
					require.Equal(t, ref, l.Expect(0x40).Body, "%d", i)
				}
				require.Empty(t, r.ran)
			})
		})
	}
}

// paced sends a packet over a link that carries so many bytes a second. It returns false when the
// device hangs up.
func paced(l *link, packet []byte, bytes int) bool {
	for len(packet) > 0 {
		n := min(bytes, len(packet))
		if _, err := l.Write(packet[:n]); err != nil {
			return false
		}
		packet = packet[n:]
		time.Sleep(time.Second)
	}
	return true
}

// While a large message comes over a slow link, answers are late, which ends neither an attempt to
// connect nor a connection. A peer that only dribbles holds none up.
func TestASlowLargePublishIsProgress(t *testing.T) {
	kept := publishBytes("down/a", 1, strings.Repeat("x", 400_000))
	many := bytes.Repeat(publishBytes("down/a", 0, strings.Repeat("x", 20_000)), 20)
	kept5 := publish5(0x32, "down/a", 1, "", strings.Repeat("x", 400_000))
	for name, c := range map[string]struct {
		packets []byte
		rate    int
		first   bool // before the SUBACK
		lasts   bool
		five    bool
		live    bool // subscribes when connected
	}{
		"skipped":                            {large("down/a", 1), 10_000, false, true, false, false},
		"skipped, while subscribing":         {large("down/a", 1), 10_000, true, true, false, false},
		"skipped, dribbling":                 {large("down/a", 1), 500, false, false, false, false},
		"kept":                               {kept, 10_000, false, true, false, false},
		"kept, while subscribing":            {kept, 10_000, true, true, false, false},
		"kept, dribbling":                    {kept, 500, false, false, false, false},
		"many":                               {many, 10_000, false, true, false, false},
		"many, while subscribing":            {many, 10_000, true, true, false, false},
		"many, dribbling":                    {many, 500, false, false, false, false},
		"kept, MQTT 5":                       {kept5, 10_000, false, true, true, false},
		"kept, MQTT 5, while subscribing":    {kept5, 10_000, true, true, true, false},
		"kept, while subscribing, connected": {kept, 10_000, true, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				go func() {
					var l *link
					granted := "\x01"
					if c.five {
						l, _ = h.welcome5(0, "")
						granted = "\x00\x01"
					} else {
						l = h.welcome()
					}
					id := l.Expect(0x82).Body[:2]
					suback := packet(0x90, string(id), granted)
					answer := suback
					if !c.first {
						l.Send(suback...)
						l.Expect(0x32)
						answer = []byte{0x40, 2, 0, 1}
					}
					if !paced(l, c.packets, c.rate) {
						return
					}
					l.Send(answer...)
					for {
						p, err := l.Next()
						if err != nil {
							return
						}
						if p.First == 0x32 {
							l.Puback(1)
						}
					}
				}()
				o := topics()
				if c.five {
					o.Protocol = MQTT5(nil)
				}
				var mu sync.Mutex
				var reports []error
				client, err := device.New(&transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"},
					New(h.dial, o), &device.Options{Trace: &device.Trace{HandlerPanic: func(v any) {
						mu.Lock()
						defer mu.Unlock()
						reports = append(reports, v.(error))
					}}})
				require.NoError(t, err)
				defer client.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				if c.live {
					require.NoError(t, client.Open(ctx))
				}
				require.NoError(t, client.HandleMessages(func(context.Context, *transport.Message) error { return nil }))
				require.NoError(t, client.Open(ctx))
				sent := make(chan error, 1)
				go func() { sent <- client.Send(ctx, &transport.Message{Body: []byte("a")}) }()
				if !c.lasts {
					require.Error(t, <-sent)
					require.NotEqual(t, device.StateConnected, client.Status().State)
					return
				}
				require.NoError(t, <-sent)
				require.EqualValues(t, 1, client.Stats().Attempts)
				mu.Lock()
				defer mu.Unlock()
				if len(c.packets) <= maxIncoming {
					require.Empty(t, reports)
					return
				}
				require.Len(t, reports, 1)
				require.ErrorIs(t, reports[0], transport.TooLarge)
			})
		})
	}
}

// An answer that is missing beside large messages which come at once is late.
func TestFastLargeMessagesAreNoProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l := h.welcome()
			id := l.Expect(0x82).Body[:2]
			l.Send(packet(0x90, string(id), "\x01")...)
			l.Expect(0x32) // the PUBLISH gets no answer
			for range 10 {
				time.Sleep(20 * time.Second)
				if !paced(l, publishBytes("down/a", 0, strings.Repeat("x", 20_000)), 1<<30) {
					return
				}
			}
			t.Error("the connection lives on")
		}()
		client, err := device.New(&transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}, New(h.dial, topics()),
			nil)
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, client.HandleMessages(func(context.Context, *transport.Message) error { return nil }))
		require.NoError(t, client.Open(t.Context()))
		require.NoError(t, client.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil))
		<-ended
	})
}

// Progress is not counted for small packets, nor for those that come at once, nor beyond the rate
// of a slow link.
func TestProgressOfReceivedBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s mqttwire.Receiving
		began := time.Now()
		s.Begin(16<<10-1, 0)
		s.Add(1 << 20)
		require.Zero(t, s.Progress(time.Time{}))
		s.Begin(2<<20, 5)
		s.Add(16<<10 - 6)
		time.Sleep(time.Second)
		require.Zero(t, s.Progress(time.Time{}))
		s.Add(1)
		require.Equal(t, time.Now(), s.Progress(time.Time{}))
		time.Sleep(time.Minute - time.Second)
		s.Begin(2<<20, 16<<10)
		s.Add(1)
		require.Equal(t, began.Add(times.Transfer(16<<10)), s.Progress(time.Time{}), "not the minute")
		require.Equal(t, time.Now(), s.Progress(time.Now()))
		s.Add(1 << 20)
		require.Equal(t, time.Now(), s.Progress(time.Time{}))
		time.Sleep(time.Minute)
		s.Add(1 << 20)
		require.Equal(t, began.Add(2*time.Minute), s.Progress(time.Time{}))
		time.Sleep(time.Minute)
		s.Add(1)
		s.Begin(16<<10, 1)
		require.Equal(t, began.Add(2*time.Minute), s.Progress(time.Time{}), "of the packet before")
	})
}
