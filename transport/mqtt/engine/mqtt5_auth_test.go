package engine

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// authPacket returns an AUTH of the method "steps".
func authPacket(code byte, data string) []byte {
	return packet(0xf0, string([]byte{code}), block("\x15\x00\x05steps\x16"+string([]byte{0, byte(len(data))})+data))
}

// stepsAuth is a method with two steps, which counts.
func stepsAuth(expires time.Time) *Auth {
	return &Auth{
		Method: "steps",
		Start: func(context.Context) ([]byte, time.Time, error) {
			return []byte("1"), expires, nil
		},
		Continue: func(_ context.Context, data []byte, last bool) ([]byte, error) {
			switch {
			case last && string(data) != "4":
				return nil, errors.New("this is not the broker, sig=abc1")
			case string(data) == "stop":
				return nil, errors.New("no more, sig=abc1")
			}
			return append(data, '+'), nil
		},
	}
}

// startAuth5 starts a session that authenticates in two steps.
func startAuth5(t testing.TB, h *hub, expires time.Time) (*running, *link) {
	return begin(t, New(h.dial, fiveOptions(&MQTT5Options{Auth: stepsAuth(expires)})), func() *link {
		l, connect := h.accept()
		require.Contains(t, string(connect.Body), "\x15\x00\x05steps\x16\x00\x011")
		l.Send(authPacket(0x18, "2")...)
		require.Equal(t, authPacket(0x18, "2+")[2:], l.Expect(0xf0).Body)
		l.Send(packet(0x20, "\x00\x00", block("\x15\x00\x05steps\x16\x00\x014"))...)
		return l
	})
}

func TestAuthenticationInSteps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, expires := newHub(t), time.Now().Add(time.Hour)
		r, l := startAuth5(t, h, expires)
		require.Equal(t, expires, r.Info().Expires)

		// and again in place
		r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
		require.Equal(t, authPacket(0x19, "1")[2:], l.Expect(0xf0).Body)
		r.Do(&transport.Request{ID: 6, Op: transport.OpRenew})
		require.ErrorIs(t, r.sink.Replies[0].Err, transport.Unavailable, "one is under way")
		r.send("meanwhile")
		l.Expect(0x32)
		l.Send(authPacket(0x18, "2")...)
		require.Equal(t, authPacket(0x18, "2+")[2:], l.Expect(0xf0).Body)
		l.Send(authPacket(0, "4")...)
		synctest.Wait()
		require.Equal(t, transport.Reply{Expires: expires}, r.sink.Replies[1].Reply)
		r.Do(&transport.Request{ID: 7, Op: transport.OpRenew})
		l.Expect(0xf0)
		l.Send(packet(0xe0, "\x87\x00")...)
		r.requireLoss(t, transport.Unauthorized)
	})
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestFailuresOfRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) { // Continue fails
		h := newHub(t)
		r, l := startAuth5(t, h, time.Time{})
		r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
		l.Expect(0xf0)
		l.Send(authPacket(0x18, "stop")...)
		synctest.Wait()
		require.ErrorIs(t, r.sink.Replies[0].Err, transport.Unauthorized)
		require.ErrorContains(t, r.sink.Replies[0].Err, "no more, sig=(hidden)")
		require.Empty(t, r.ran)
	})
	bubble(t, func(t *testing.T) { // a failure that is over soon
		h := newHub(t)
		busy := &transport.Error{Kind: transport.Throttled, RetryAfter: time.Minute}
		starts := 0
		auth := &Auth{Method: "steps", Start: func(context.Context) ([]byte, time.Time, error) {
			if starts++; starts == 2 {
				return nil, time.Time{}, busy
			}
			return nil, time.Time{}, nil
		}, Continue: func(context.Context, []byte, bool) ([]byte, error) {
			if starts == 1 {
				return nil, nil
			}
			return nil, busy
		}}
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{Auth: auth})), "")
		r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
		synctest.Wait()
		err := transport.Find(r.sink.Replies[0].Err)
		require.True(t, errfilter.Retryable(err), "nothing was sent")
		require.Equal(t, time.Minute, err.RetryAfter)
		r.Do(&transport.Request{ID: 6, Op: transport.OpRenew})
		l.Expect(0xf0)
		l.Send(authPacket(0x18, "2")...)
		synctest.Wait()
		require.ErrorIs(t, r.sink.Replies[1].Err, transport.Throttled)
		require.False(t, errfilter.Retryable(r.sink.Replies[1].Err), "the broker waits for the second step")
	})
	for _, starts := range []bool{true, false} {
		bubble(t, func(t *testing.T) { // an error whose method panics
			h, auth, calls := newHub(t), stepsAuth(time.Time{}), 0
			start := auth.Start
			auth.Start = func(ctx context.Context) ([]byte, time.Time, error) {
				if calls++; starts && calls == 2 {
					return nil, time.Time{}, (*nilError)(nil)
				}
				return start(ctx)
			}
			auth.Continue = func(context.Context, []byte, bool) ([]byte, error) {
				if calls == 2 {
					return nil, (*nilError)(nil)
				}
				return nil, nil
			}
			r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{Auth: auth})), "")
			r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
			if !starts {
				l.Expect(0xf0)
				l.Send(authPacket(0x18, "2")...)
			}
			synctest.Wait()
			require.ErrorIs(t, r.sink.Replies[0].Err, transport.Unauthorized)
			require.ErrorContains(t, r.sink.Replies[0].Err, "an error whose Error method panics")
		})
	}
	for want, answer := range map[string][]byte{
		"this is not the broker, sig=(hidden)": authPacket(0, "5"),
		"another authentication method":        packet(0xf0, "\x18", block("\x15\x00\x05other")),
		"an AUTH that was not expected":        authPacket(0x19, ""),
		"authentication data without":          packet(0xf0, "\x18", block("")),
		"an AUTH that answers nothing":         append(authPacket(0, "4"), authPacket(0, "4")...),
		"more steps of authentication than":    nil,
	} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := startAuth5(t, h, time.Time{})
			r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
			l.Expect(0xf0)
			for range maxRounds {
				if answer == nil {
					l.Send(authPacket(0x18, "2")...)
					l.Expect(0xf0)
				}
			}
			if answer == nil {
				answer = authPacket(0x18, "2")
			}
			l.Send(answer...)
			require.ErrorContains(t, <-r.ran, want)
		})
	}
}

// A callback that hangs fails a renewal, which may be tried again while the credentials last.
func TestACallbackThatHangsFailsTheRenewal(t *testing.T) {
	for _, starts := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			h, auth, hang := newHub(t), stepsAuth(time.Time{}), false
			start := auth.Start
			auth.Start = func(ctx context.Context) ([]byte, time.Time, error) {
				if hang && starts {
					<-ctx.Done()
					return nil, time.Time{}, ctx.Err()
				}
				return start(ctx)
			}
			auth.Continue = func(ctx context.Context, _ []byte, _ bool) ([]byte, error) {
				if hang {
					<-ctx.Done()
				}
				return nil, ctx.Err()
			}
			r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{Auth: auth})), "")
			hang = true
			began := time.Now()
			r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
			if !starts {
				l.Expect(0xf0)
				l.Send(authPacket(0x18, "2")...)
			}
			time.Sleep(authTimeout)
			synctest.Wait()
			require.Len(t, r.sink.Replies, 1)
			require.Equal(t, authTimeout, time.Since(began))
			require.ErrorIs(t, r.sink.Replies[0].Err, transport.Timeout)
			require.Equal(t, starts, errfilter.Retryable(r.sink.Replies[0].Err))
			if hang = false; starts {
				r.Do(&transport.Request{ID: 6, Op: transport.OpRenew})
				l.Expect(0xf0)
			}
			require.Empty(t, r.ran)
		})
	}
}

func TestTheEndOfASessionEndsItsAuthentication(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, calls := newHub(t), 0
		auth := &Auth{Method: "slow", Start: func(ctx context.Context) ([]byte, time.Time, error) {
			if calls++; calls == 1 {
				return nil, time.Time{}, nil
			}
			<-ctx.Done()
			return nil, time.Time{}, ctx.Err()
		}}
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{Auth: auth})), "")
		r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
		synctest.Wait()
		require.Equal(t, 2, calls)
		_ = l.Close()
		r.requireLoss(t, transport.Network)
	})
}

// With a method alone, the token is the data of the first step and no password.
func TestTheTokenAsAuthenticationData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, fiveOptions(&MQTT5Options{Auth: &Auth{Method: "token"}}))
		var connect got
		r, l := begin(t, tr, func() (l *link) {
			l, connect = h.welcome5(0, "")
			return l
		})
		require.Zero(t, connect.Body[7]&0x40, "no password")
		_, data, _ := strings.Cut(string(connect.Body), "\x15\x00\x05token\x16\x00")
		require.True(t, strings.HasPrefix(data[1:], "SharedAccessSignature sr="), data)
		first := r.Info().Expires
		require.Equal(t, time.Hour, time.Until(first).Round(time.Second))
		time.Sleep(time.Minute)
		r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
		require.Contains(t, string(l.Expect(0xf0).Body), "SharedAccessSignature sr=")
		l.Send(packet(0xf0)...)
		synctest.Wait()
		require.NoError(t, r.sink.Replies[0].Err)
		require.Equal(t, time.Minute, r.sink.Replies[0].Expires.Sub(first))
		r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
		l.Expect(0xf0)
		l.Send(packet(0xf0, "\x18", block("\x15\x00\x05token"))...)
		synctest.Wait()
		require.ErrorContains(t, r.sink.Replies[1].Err, "Auth.Continue is not set")
	})
}

func TestARenewalWithoutAuthIsUnsupported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, _ := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		r.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
		require.ErrorIs(t, r.sink.Replies[0].Err, transport.Unsupported)
	})
}

func TestFailedAuthenticationsOfADial(t *testing.T) {
	kind := &transport.Error{Kind: transport.Unavailable}
	for want, c := range map[string]struct {
		start  func() error
		answer []byte
		kind   transport.Kind
	}{
		"started badly, sig=(hidden)": {start: func() error {
			return errors.New("started badly, sig=abc1")
		}, kind: transport.Unauthorized},
		"service unavailable: sig=(hidden)": {start: func() error {
			return &transport.Error{Kind: transport.Unavailable, Err: errors.New("sig=abc1")}
		}, kind: transport.Unavailable},
		"service unavailable":       {start: func() error { return kind }, kind: transport.Unavailable},
		"Auth.Start panicked: ouch": {start: func() error { panic("ouch") }, kind: transport.Unauthorized},
		"panicked: an error whose":  {start: func() error { panic((*os.PathError)(nil)) }, kind: transport.Unauthorized},
		"Auth.Start ended its": {start: func() error { runtime.Goexit(); return nil },
			kind: transport.Unauthorized},
		"no more, sig=(hidden)": {answer: authPacket(0x18, "stop"), kind: transport.Unauthorized},
		"this is not the broker, sig=(hidden)": {answer: packet(0x20, "\x00\x00", block("\x15\x00\x05steps\x16\x00\x015")),
			kind: transport.Unauthorized},
		"another authentication method": {answer: packet(0x20, "\x00\x00", block("\x15\x00\x05other")),
			kind: transport.Protocol},
		"does not continue":         {answer: authPacket(0x19, ""), kind: transport.Protocol},
		"bad authentication method": {answer: packet(0x20, "\x00\x8c", block("")), kind: transport.Unsupported},
	} {
		bubble(t, func(t *testing.T) {
			h, auth := newHub(t), stepsAuth(time.Time{})
			if c.start != nil {
				auth.Start = func(context.Context) ([]byte, time.Time, error) { return nil, time.Time{}, c.start() }
			}
			_, _, _, _, err := dialed(t, New(h.dial, fiveOptions(&MQTT5Options{Auth: auth})), func() {
				if c.start == nil {
					l, _ := h.accept()
					l.Send(c.answer...)
				}
			})
			require.ErrorIs(t, err, c.kind, want)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestTooManyStepsWhileDialing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		_, _, _, _, err := dialed(t, New(h.dial, fiveOptions(&MQTT5Options{Auth: stepsAuth(time.Time{})})), func() {
			l, _ := h.accept()
			for range maxRounds {
				l.Send(authPacket(0x18, "2")...)
				l.Expect(0xf0)
			}
			l.Send(authPacket(0x18, "2")...)
		})
		require.ErrorIs(t, err, transport.Protocol)
		require.ErrorContains(t, err, "more steps")
	})
}
