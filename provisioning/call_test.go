package provisioning_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/transport"
)

const preview = "2026-11-02-preview"

// caller returns a client that calls the script.
func caller(t *testing.T, s *script, o *provisioning.Options) *provisioning.Client {
	t.Helper()
	id := identity(t)
	id.SecondSign = id.Sign
	c, err := provisioning.New(id, s, o)
	require.NoError(t, err)
	return c
}

func call(t *testing.T, c *provisioning.Client) (*provisioning.Answer, error) {
	t.Helper()
	return c.Call(t.Context(), "check", []byte("{}"))
}

func TestCallsShareAConnectionUntilItIsIdle(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200, body: "{}"}, say{status: 503}, say{status: 200}, say{status: 200})
		c := caller(t, s, nil)
		a, err := call(t, c)
		require.NoError(t, err)
		require.Equal(t, "{}", string(a.Body))
		time.Sleep(29 * time.Second)
		a, err = call(t, c)
		require.NoError(t, err, "the answer of a failure is an answer")
		require.Equal(t, 503, a.Status)
		time.Sleep(29 * time.Second)
		require.Equal(t, 1, s.sessions())
		time.Sleep(2 * time.Second)
		require.Zero(t, s.sessions())
		_, err = call(t, c)
		require.NoError(t, err)
		c.CloseIdle()
		require.Zero(t, s.sessions())
		_, err = call(t, c)
		require.NoError(t, err)
		require.Len(t, s.logins, 3)
		require.Equal(t, preview, s.logins[0].APIVersion)
		requireRequests(t, s, "call check", "call check", "call check", "call check")
		c.CloseIdle()
	})
}

func TestAConnectionThatWasLostBetweenCallsIsReplacedOnce(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200}, say{err: lost()}, say{status: 200}, say{err: lost()}, say{err: lost()})
		c := caller(t, s, nil)
		for range 2 {
			_, err := call(t, c)
			require.NoError(t, err)
		}
		_, err := call(t, c)
		require.ErrorIs(t, err, transport.Network, "the new connection was lost, too")
		require.Equal(t, transport.OpCall, transport.Find(err).Op)
		require.Zero(t, s.sessions())
		require.Len(t, s.logins, 3)
	})
}

func TestAConnectionWithAnOldTokenIsReplaced(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		id.TokenLife = 5 * time.Minute
		says := make([]say, 10)
		for i := range says {
			says[i].status = 200
		}
		s := newScript(says...)
		c, err := provisioning.New(id, s, nil)
		require.NoError(t, err)
		for range says {
			_, err := call(t, c)
			require.NoError(t, err)
			time.Sleep(20 * time.Second)
		}
		require.Len(t, s.logins, 2, "the token is replaced after three minutes")
		c.CloseIdle()
	})
}

func TestARefusedTokenOfACallLeadsToTheOtherKey(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		refused := say{status: 401, body: `{"errorCode":401002}`}
		s := newScript(refused, say{status: 200}, say{status: 200}, refused, refused)
		c := caller(t, s, nil)
		for range 2 {
			_, err := call(t, c)
			require.NoError(t, err)
		}
		require.Len(t, s.logins, 2, "the accepted key is kept")
		_, err := call(t, c)
		require.ErrorIs(t, err, transport.Unauthorized)
		require.Zero(t, s.sessions())
	})
}

func TestCallsWaitForEachOther(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{hangs: true})
		c := caller(t, s, nil)
		slow, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error)
		go func() {
			_, err := c.Call(slow, "check", nil)
			done <- err
		}()
		synctest.Wait()
		c.CloseIdle() // a call is made
		quick, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.Call(quick, "check", nil)
		require.ErrorIs(t, err, transport.Cancelled)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, <-done, transport.Cancelled)
		require.Zero(t, s.sessions())
	})
}

func TestCallsThatCannotBeMadeCostNoConnection(t *testing.T) {
	s := newScript()
	id := &provisioning.Identity{IDScope: "0ne", RegistrationID: "reg-0001", TPM: newFakeTPM()}
	tpm, err := provisioning.New(id, dpshttp.New(nil), nil)
	require.NoError(t, err)
	amqp, err := provisioning.New(identity(t), dpsamqp.New(nil), nil)
	require.NoError(t, err)
	for _, row := range []struct {
		c    *provisioning.Client
		name string
		body string
		kind transport.Kind
		text string
	}{
		{amqp, "check", "{}", transport.Unsupported, "call: unsupported: check: the service does not take it over AMQP; " +
			"use dpshttp or dpsmqtt"},
		{tpm, "check", "{}", transport.Unsupported, "call: unsupported: check: a device with a TPM cannot call it; use a " +
			"key or a certificate"},
		{caller(t, s, nil), "", "{}", transport.Invalid, "name"},
		{caller(t, s, nil), "a/b", "{}", transport.Invalid, "name"},
		{caller(t, s, nil), "check", strings.Repeat("x", 96<<10+1), transport.TooLarge, "check: 98305 bytes; the service " +
			"takes 98304"},
	} {
		_, err := row.c.Call(t.Context(), row.name, []byte(row.body))
		require.ErrorIs(t, err, row.kind)
		require.ErrorContains(t, err, row.text)
	}
}

// events returns options that record the steps.
func events(into *[]provisioning.Event) *provisioning.Options {
	return &provisioning.Options{OnEvent: func(e provisioning.Event) { *into = append(*into, e) }}
}

func TestARegistrationWaitsForBeforeOnItsConnection(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200}, say{status: 200, body: assigned}, say{status: 200, body: assigned})
		var steps []provisioning.Event
		c := caller(t, s, events(&steps))
		c.Before(func(ctx context.Context) error {
			_, err := c.Call(ctx, "check", []byte("{}"))
			time.Sleep(20 * time.Second)
			return err
		})
		renewal, err := c.WithCSR([]byte{0x30})
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.NoError(t, err)
		requireRequests(t, s, "call check", "register")
		require.Len(t, s.logins, 1)
		require.Equal(t, preview, s.logins[0].APIVersion)
		require.Zero(t, s.sessions())
		require.Equal(t, provisioning.StepHolding, steps[0].Step)
		require.Equal(t, provisioning.Event{Step: provisioning.StepReleased, Attempt: 1}, steps[1])
		_, err = renewal.Register(t.Context())
		require.NoError(t, err)
		requireRequests(t, s, "call check", "register", "register")
		require.Equal(t, preview, s.logins[1].APIVersion)
	})
}

func TestBeforeDelaysRegistrationsAMinuteAtMost(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{err: lost()}, say{status: 200, body: assigned})
		var steps []provisioning.Event
		c := caller(t, s, events(&steps))
		ran := 0
		c.Before(func(ctx context.Context) error {
			if ran++; ran == 1 {
				time.Sleep(20 * time.Second)
				return errors.New("no update service")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		_, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, ran, "it ran again after a failed attempt")
		require.Equal(t, began.Add(20*time.Second), s.began.Add(s.at[0]))
		retry := time.Duration(0)
		for _, e := range steps {
			if e.Step == provisioning.StepRetrying {
				retry += e.Delay
			}
		}
		require.Equal(t, time.Minute+retry, time.Since(began))
		require.EqualError(t, steps[1].Err, "no update service")
		require.Equal(t, "released, attempt 1: no update service", steps[1].String())
	})
}

func TestBeforeMayPanic(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200, body: assigned})
		var steps []provisioning.Event
		c := caller(t, s, events(&steps))
		c.Before(func(context.Context) error { panic("away") })
		_, err := c.Register(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, steps[1].Err, "callback Client.Before panicked: away")
	})
}

// Over MQTT, a second connection of a device would end the first.
func TestACallAndAnAttemptToRegisterUseOneConnectionInTurn(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 503, after: 20 * time.Second}, say{status: 200}, say{status: 202, body: assigning},
			say{status: 200, body: assigned}, say{status: 200})
		c := caller(t, s, &provisioning.Options{MQTTv5: true})
		done := make(chan error)
		go func() {
			_, err := c.Register(t.Context())
			done <- err
		}()
		time.Sleep(10 * time.Second)
		_, err := call(t, c) // the registration waits for its next attempt
		require.NoError(t, err)
		for sent := 0; sent < 3; {
			time.Sleep(time.Second)
			s.mu.Lock()
			sent = len(s.requests)
			s.mu.Unlock()
		}
		_, err = call(t, c) // it waits for its next poll
		require.NoError(t, err)
		require.NoError(t, <-done)
		requireRequests(t, s, "register", "call check", "register", "poll op-1", "call check")
		require.Len(t, s.logins, 1)
		require.LessOrEqual(t, s.sessions(), 1, "the end of the registration closes the connection that it finds unused")
		time.Sleep(31 * time.Second)
		require.Zero(t, s.sessions())
	})
}

func TestACallAsksForItsVersionOfTheAPI(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200}, say{status: 200, body: assigned}, say{status: 200})
		c := caller(t, s, nil)
		_, err := call(t, c)
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.NoError(t, err)
		_, err = call(t, c)
		require.NoError(t, err)
		require.Equal(t, []string{preview, "2019-03-31", preview},
			[]string{s.logins[0].APIVersion, s.logins[1].APIVersion, s.logins[2].APIVersion})
		c.CloseIdle()
		require.Zero(t, s.sessions())
	})
}

func TestARegistrationDoesNotWaitForACallLongerThanItsContext(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{hangs: true})
		c := caller(t, s, nil)
		slow, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan struct{})
		go func() {
			_, _ = c.Call(slow, "check", nil)
			close(done)
		}()
		synctest.Wait()
		quick, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Register(quick)
		require.ErrorIs(t, err, transport.Cancelled)
		require.Equal(t, transport.OpRegister, transport.Find(err).Op)
		<-done
		require.Zero(t, s.sessions())
	})
}
