package amqp_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// dialLog records dials, which fail with err while it is set.
type dialLog struct {
	mu    sync.Mutex
	err   error
	dials []time.Time
}

func (l *dialLog) options(h *hub) *amqp.Options {
	o := h.options()
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.mu.Lock()
		l.dials = append(l.dials, time.Now())
		err := l.err
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, addr)
	}
	return o
}

func (l *dialLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.dials = err, nil
}

func (l *dialLog) times() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}

// try dials once, for longer than a device waits for the dial of another one, and leaves.
func try(t *testing.T, mux *amqp.Mux, creds *transport.Credentials) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := mux.Dial(ctx, &transport.Config{Creds: creds, Window: 1, Queue: 1, Sink: &sink{}})
	if err == nil {
		cancel()
		_ = s.Run(ctx)
	}
	return err
}

var errUnreachable = &transport.Error{Kind: transport.Network, Err: errors.New("no way")}

// The pause between dials of different devices grows with each failure. It is counted for each
// host, and starts again after a success.
func TestThePauseBetweenDialsOfDevices(t *testing.T) {
	for _, row := range []struct {
		name string
		// between returns the device that fails next.
		between func(t *testing.T, l *dialLog, mux *amqp.Mux, h *hub) *transport.Credentials
		want    time.Duration
	}{
		{"grows", func(t *testing.T, _ *dialLog, _ *amqp.Mux, h *hub) *transport.Credentials {
			return h.CredsWith(t, "")
		}, 8 * time.Second},
		{"of another host", func(t *testing.T, _ *dialLog, _ *amqp.Mux, h *hub) *transport.Credentials {
			other := *h.CredsWith(t, "")
			other.Host = "other.example.test"
			return &other
		}, time.Second},
		{"after a success", func(t *testing.T, l *dialLog, mux *amqp.Mux, h *hub) *transport.Credentials {
			l.fail(nil)
			require.NoError(t, try(t, mux, h.CredsWith(t, "")))
			l.fail(errUnreachable)
			return h.CredsWith(t, "")
		}, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				var l dialLog
				mux := amqp.NewMux(l.options(h))
				l.fail(errUnreachable)
				for range 3 {
					require.Error(t, try(t, mux, h.CredsWith(t, "")))
				}
				creds := row.between(t, &l, mux, h)
				l.fail(errUnreachable)
				require.Error(t, try(t, mux, creds))
				failed := time.Now()
				l.fail(errUnreachable)
				next := *h.device(t, "next")
				next.Host = creds.Host
				require.Error(t, try(t, mux, &next))
				if len(l.times()) == 0 { // it waited for the full limit; try again
					require.Error(t, try(t, mux, &next))
				}
				require.NotEmpty(t, l.times())
				require.Equal(t, row.want, l.times()[0].Sub(failed))
			})
		})
	}
}

// No device dials before the time that the hub set with RetryAfter, and each gets the remaining
// time as RetryAfter.
func TestNoDeviceDialsBeforeRetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		var l dialLog
		mux := amqp.NewMux(l.options(h))
		l.fail(&transport.Error{Kind: transport.Throttled, RetryAfter: time.Minute, Err: errors.New("later")})
		require.ErrorIs(t, try(t, mux, h.CredsWith(t, "")), transport.Throttled)
		l.fail(nil)
		other := h.device(t, "other")
		for range 5 {
			time.Sleep(11 * time.Second)
			began := time.Now()
			e := transport.Find(try(t, mux, other))
			require.NotNil(t, e, "it dialed")
			require.Equal(t, transport.Throttled, e.Kind)
			require.Greater(t, e.RetryAfter, time.Duration(0))
			require.Zero(t, time.Since(began))
			require.Empty(t, l.times())
		}
		time.Sleep(6 * time.Second)
		require.NoError(t, try(t, mux, other))
	})
}

// A message that cannot be encoded fails permanently, and later messages are sent.
func TestAMessageThatCannotBeEncodedIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		o.Batch = 1
		r := h.dev1(t, o)
		r.requireSends("x")
		r.forget()
		r.Send([]transport.Item{
			{Tag: 1, Msg: &transport.Message{ID: "\xff", Body: []byte("a")}},
			{Tag: 2, Msg: &transport.Message{Body: []byte("b")}},
		})
		time.Sleep(time.Minute)
		all := r.sink.AllResults()
		require.Len(t, all, 2)
		for _, got := range all {
			if got.Tag == 1 {
				require.ErrorIs(t, got.Err, transport.Invalid)
				require.ErrorContains(t, got.Err, "UTF-8", "it was sent, and the hub refused it")
			} else {
				require.NoError(t, got.Err)
			}
		}
		require.Len(t, h.Messages(), 2)
	})
}
