package device_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

func TestOverflowRules(t *testing.T) {
	fill := func(t *testing.T, o *device.Options) (*device.Client, *fake, []device.Receipt) {
		f := &fake{}
		c, _ := client(t, f, o)
		rs := make([]device.Receipt, 4)
		for i := range 3 {
			require.NoError(t, c.Enqueue(t.Context(), msg(i+1), &rs[i]))
		}
		return c, f, rs
	}
	limits := map[string]device.Options{
		"by count": {MaxMessages: 3},
		"by bytes": {MaxBytes: 7}, // three messages of 2 bytes
	}
	for name, o := range limits {
		t.Run(name, func(t *testing.T) {
			run(t, "block waits for room", func(t *testing.T) {
				c, f, _ := fill(t, &o)
				done := make(chan error, 3)
				for i := range 3 {
					go func() { done <- c.Enqueue(t.Context(), msg(4+i), nil) }()
				}
				synctest.Wait()
				require.Empty(t, done)
				open(t, c)
				for range 3 {
					require.NoError(t, <-done)
				}
				require.NoError(t, c.Flush(t.Context()))
				require.Len(t, f.ids(), 6)
			})
			run(t, "block ends with close", func(t *testing.T) {
				c, _, _ := fill(t, &o)
				done := async(func() error { return c.Enqueue(context.Background(), msg(4), nil) })
				synctest.Wait()
				require.NoError(t, c.Close())
				require.ErrorIs(t, <-done, transport.Closed)
			})
			for name, row := range map[string]struct {
				rule           device.Overflow
				connected      bool  // the three are in flight
				put, first, it error // results of the call, and for messages 1 and 4
				sent           []string
			}{
				"fail":                                 {device.OverflowFail, false, transport.Dropped, nil, nil, ids(1, 3)},
				"drop oldest":                          {device.OverflowDropOldest, false, nil, transport.Dropped, nil, ids(2, 4)},
				"drop oldest spares what is in flight": {device.OverflowDropOldest, true, nil, nil, transport.Dropped, ids(1, 3)},
				"drop newest":                          {device.OverflowDropNewest, false, nil, nil, transport.Dropped, ids(1, 3)},
			} {
				run(t, name, func(t *testing.T) {
					o := o
					o.Overflow = row.rule
					c, f, rs := fill(t, &o)
					f.gate = make(chan struct{})
					if row.connected {
						open(t, c)
						synctest.Wait()
					}
					require.ErrorIs(t, c.Enqueue(t.Context(), msg(4), &rs[3]), row.put)
					close(f.gate)
					open(t, c)
					require.ErrorIs(t, rs[0].Wait(t.Context()), row.first)
					if row.put != nil {
						require.NoError(t, c.Flush(t.Context()))
						require.NoError(t, c.Enqueue(t.Context(), msg(5), &rs[3]), "the receipt is free")
						row.sent = append(row.sent, "5")
					}
					require.ErrorIs(t, rs[3].Wait(t.Context()), row.it)
					require.NoError(t, c.Flush(t.Context()))
					require.Equal(t, row.sent, f.ids())
					s := c.Stats()
					require.Equal(t, s.Accepted, s.Acknowledged+s.Dropped)
				})
			}
		})
	}
}

func TestMessagesExpireWhileTheyWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		var early, late, never device.Receipt
		e := msg(1)
		e.Expires = time.Now().Add(10 * time.Second)
		l := msg(2)
		l.Expires = time.Now().Add(20 * time.Second)
		require.NoError(t, c.Enqueue(t.Context(), l, &late))
		require.NoError(t, c.Start())
		synctest.Wait()
		require.NoError(t, c.Enqueue(t.Context(), e, &early)) // earlier than the armed timer
		require.NoError(t, c.Enqueue(t.Context(), msg(3), &never))

		start := time.Now()
		require.ErrorIs(t, early.Wait(t.Context()), transport.Expired)
		require.Equal(t, 10*time.Second, time.Since(start))
		require.ErrorIs(t, late.Wait(t.Context()), transport.Expired)
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Equal(t, 1, c.Stats().Queued)
		require.ErrorIs(t, c.Enqueue(t.Context(), e, &early), transport.Expired, "at once when it is over already")
	})
}

// Messages expire by the clock of the credentials, not by that of the process.
func TestExpiryGoesByTheCredentialsClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := creds()
		k.Now = func() time.Time { return time.Now().Add(1000 * time.Hour) }
		c := made(t, k, &fake{dial: hang}, nil)
		require.NoError(t, c.Start())
		m := msg(1)
		m.Expires = k.Now().Add(5 * time.Second)
		var r device.Receipt
		start := time.Now()
		require.NoError(t, c.Enqueue(t.Context(), m, &r))
		require.ErrorIs(t, r.Wait(t.Context()), transport.Expired)
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestReceiptIsForOneMessageAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		var r device.Receipt
		require.ErrorIs(t, r.Wait(t.Context()), transport.Invalid)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
		require.ErrorIs(t, c.Enqueue(t.Context(), msg(2), &r), transport.Invalid)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, r.Wait(ctx), context.Canceled)
		open(t, c)
		require.NoError(t, r.Wait(t.Context()), "a wait that was given up can be taken up again")
	})
}

func TestBadInputIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, &device.Options{MaxBytes: 10})
		big := &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}
		for _, tc := range []struct {
			m    *transport.Message
			kind transport.Kind
			text string
		}{
			{nil, transport.Invalid, "nil"},
			{big, transport.TooLarge, "262145 bytes"},
			{&transport.Message{Properties: []transport.Property{{Name: "iothub-ack", Value: "x"}}}, transport.Invalid,
				`"iothub-ack" is reserved`},
			{&transport.Message{Properties: []transport.Property{{Name: "$.mid", Value: "x"}}}, transport.Invalid,
				`"$.mid" is reserved`},
			{&transport.Message{Properties: []transport.Property{{Name: "a"}, {Name: "A"}}}, transport.Invalid,
				"is there twice"},
			{&transport.Message{Topic: "a\x7f"}, transport.Invalid, "message Topic has a control character"},
			{sized("1", 11), transport.TooLarge, "over Options.MaxBytes, 10, the limit of the whole queue; give MaxBytes more"},
		} {
			for _, err := range []error{c.Send(t.Context(), tc.m), c.Enqueue(t.Context(), tc.m, nil)} {
				require.ErrorIs(t, err, tc.kind)
				require.ErrorContains(t, err, tc.text)
			}
		}
	})
	for name, make := range map[string]func() (*device.Client, error){
		"transport":   func() (*device.Client, error) { return device.New(creds(), nil, nil) },
		"credentials": func() (*device.Client, error) { return device.New(nil, &fake{}, nil) },
		"Host": func() (*device.Client, error) {
			return device.New(&transport.Credentials{DeviceID: "d"}, &fake{}, nil)
		},
		"Window is -1; give 1 to 61440, or 0 for 128": func() (*device.Client, error) {
			return device.New(creds(), &fake{}, &device.Options{Window: -1})
		},
		"MaxMessages is 61441; give 1 to 61440, or 0 for 4096": func() (*device.Client, error) {
			return device.New(creds(), &fake{}, &device.Options{MaxMessages: transport.MaxTags + 1})
		},
		"DialTimeout": func() (*device.Client, error) {
			return device.New(creds(), &fake{}, &device.Options{DialTimeout: -1})
		},
		"Overflow": func() (*device.Client, error) { return device.New(creds(), &fake{}, &device.Options{Overflow: 99}) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := make()
			require.Nil(t, c)
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, name)
		})
	}
}

func TestStatusesAreReportedInOrderAndASlowListenerMissesTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := &watch{}
		f := &fake{dial: func(n int, _ context.Context) error {
			if n <= 100 {
				return lost(transport.Network)
			}
			return nil
		}}
		opened(t, f, &device.Options{RetryPolicy: constant(time.Second), OnStatus: func(s device.Status) {
			w.add(s)
			if len(w.list()) == 1 {
				time.Sleep(time.Hour)
			}
		}})
		time.Sleep(2 * time.Hour)
		all := w.list()
		require.Len(t, all, 17, "the one under way and the 16 latest")
		require.Equal(t, 202-17, all[1].Missed)
		for i := 2; i < len(all); i++ {
			require.Zero(t, all[i].Missed)
			require.False(t, all[i].Since.Before(all[i-1].Since))
		}
		require.Equal(t, device.ReasonConnectionOK, all[16].Reason)
	})
}

func TestOpenGivesUpWithItsContextAndStopsWhatItStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, _ := client(t, f, nil)
		ctx := within(t, 5*time.Second)
		err := c.Open(ctx)
		require.ErrorIs(t, err, transport.Cancelled)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, transport.Network, "the latest failure is told")
		require.Equal(t, device.ReasonOpenCancelled, c.Status().Reason)
		n := len(f.dialTimes())
		time.Sleep(time.Hour)
		require.Len(t, f.dialTimes(), n)

		// An Open that joined a running client leaves it running.
		require.NoError(t, c.Start())
		ctx2, cancel2 := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel2()
		require.ErrorIs(t, c.Open(ctx2), transport.Cancelled)
		require.Equal(t, device.StateDisconnectedRetrying, c.Status().State)
	})
}

// A Client printed by a panic dump or with %+v shows no secret.
func TestAClientPrintsNoSecret(t *testing.T) {
	const key = "c2VjcmV0LWtleS1vZi10aGUtZGV2aWNl"
	k := creds()
	var err error
	k.Sign, err = transport.SharedKey(key)
	require.NoError(t, err)
	c := made(t, k, &fake{}, nil)
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		for _, v := range []any{k, *k, c} {
			require.False(t, strings.Contains(sprintf(verb, v), key))
		}
	}
}

// The number of waiting bytes is compared without overflow, also with a 32-bit int.
func TestTheLargestQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, &device.Options{MaxBytes: math.MaxInt32, MaxMessages: 10_000,
			Overflow: device.OverflowFail})
		m := &transport.Message{Body: make([]byte, 255<<10)} // one shared body
		n := 0
		for n < 10_000 && c.Enqueue(t.Context(), m, nil) == nil {
			n++
		}
		require.Equal(t, math.MaxInt32/m.Size(), n)
	})
}

// The oldest message waits for a retry. A slow link that answers later messages one by one is not
// cut.
func TestASlowLinkBehindARefusedMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tags []uint16
		f := &fake{verdict: func(_ int, it transport.Item) error {
			if it.Msg.ID == "1" {
				return refused(transport.Unavailable)
			}
			tags = append(tags, it.Tag)
			return errHold
		}}
		c, _ := client(t, f, &device.Options{AckTimeout: 30 * time.Second, RetryPolicy: constant(time.Hour)})
		enqueue(t, c, 1, 8)
		open(t, c)
		synctest.Wait()
		require.Len(t, tags, 7)
		for _, tag := range tags {
			time.Sleep(10 * time.Second)
			f.last().cfg.Sink.Done(tag, nil)
			synctest.Wait()
		}
		require.NoError(t, c.Stats().LastError)
		require.Equal(t, device.StateConnected, c.Status().State)
	})
}
