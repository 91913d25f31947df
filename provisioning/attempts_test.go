package provisioning_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// The caller of Attempts waits. The operation and the count of retries go on, connections do not.
func TestAttempts(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 202, body: assigning}, say{status: 503, after: 40 * time.Second}, say{err: lost()},
			say{status: 200, body: assigned})
		var lines []string
		c, err := provisioning.New(identity(t), s, &provisioning.Options{
			Policy:  retrypolicy.MaxAttempts{Policy: retrypolicy.Fixed{Delay: 5 * time.Second}, Total: 3},
			OnEvent: func(e provisioning.Event) { lines = append(lines, e.Step.String()) }})
		require.NoError(t, err)
		attempts := c.Attempts()

		_, retry, err := attempts.Next(t.Context())
		require.ErrorIs(t, err, transport.Unavailable)
		require.Equal(t, 40*time.Second, retry)
		require.Zero(t, s.open)
		require.Equal(t, 2*time.Second, time.Since(s.began), "it does not wait itself")
		_, retry, err = attempts.Next(t.Context())
		require.ErrorIs(t, err, transport.Network)
		require.Equal(t, 5*time.Second, retry)
		a, retry, err := attempts.Next(t.Context())
		require.NoError(t, err)
		require.Negative(t, retry)
		require.Equal(t, "dev-1", a.DeviceID)
		require.Zero(t, s.open)
		requireRequests(t, s, "register", "poll op-1", "poll op-1", "poll op-1")
		require.Equal(t, []string{"registering", "assigning", "polling", "retrying", "polling", "retrying", "polling",
			"assigned"}, lines)

		_, retry, err = attempts.Next(t.Context())
		require.ErrorIs(t, err, transport.Invalid, "they are used up")
		require.Negative(t, retry)
	})
}

func TestAttemptsEndWithThePolicyOrAFinalFailure(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 503}, say{status: 401})
		c, err := provisioning.New(identity(t), s, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
		for _, kind := range []transport.Kind{transport.RetryExpired, transport.Unauthorized} {
			_, retry, err := c.Attempts().Next(t.Context())
			require.ErrorIs(t, err, kind)
			require.Negative(t, retry)
		}
	})
}

// A registration that failed is over: polls would get the same answer for ever.
func TestAFailedOperationIsNotPolledAgain(t *testing.T) {
	failed := func(code string) say {
		return say{status: 200, body: `{"operationId":"op-1","status":"failed","registrationState":{"errorCode":` + code +
			`}}`}
	}
	testkit.In2030(t, func(t *testing.T) {
		for _, code := range []string{"400208", "404201", "404000"} {
			s := newScript(say{status: 202, body: assigning}, failed(code))
			_, err := register(t, s, nil)
			require.ErrorIs(t, err, transport.NotFound)
			requireRequests(t, s, "register", "poll op-1")
		}
		for _, code := range []string{"500001", "429001", "503000"} {
			s := newScript(say{status: 202, body: assigning}, failed(code), say{status: 200, body: assigned})
			_, err := register(t, s, nil)
			require.NoError(t, err)
			requireRequests(t, s, "register", "poll op-1", "register")
		}
	})
}

// A code that no refusal can have does not hide that the service is busy.
func TestTheStatusCountsIfTheCodeIsNone(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		for _, code := range []string{"100000", "200001", "399999", "600000", "999999", "1000000", "-1", "5e5"} {
			_, err := register(t, newScript(say{status: 503, body: `{"errorCode":` + code + `}`},
				say{status: 200, body: assigned}), nil)
			require.NoError(t, err, code)
		}
	})
}

// The id of an operation goes into a path, where some would name another resource, and into texts,
// which are UTF-8.
func TestAnOperationThatCannotBeNamedIsRefused(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		for _, id := range []string{".", "..", `\u002e.`, "5.\xff"} {
			s := newScript(say{status: 202, body: `{"operationId":"` + id + `","status":"assigning"}`},
				say{status: 200, body: assigned})
			_, err := register(t, s, nil)
			require.NoError(t, err)
			requireRequests(t, s, "register", "register")
		}
	})
}

// A service that never names its operations is not asked every two seconds for ever.
func TestRegistersWithoutAnOperationAreSlowedDown(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		var says []say
		for range 12 {
			says = append(says, say{status: 202, body: `{"status":"assigning"}`})
		}
		s := newScript(append(says, say{status: 200, body: assigned})...)
		_, err := register(t, s, nil)
		require.NoError(t, err)
		require.Greater(t, time.Since(s.began), 3*time.Minute)
	})
}

// An operation that has no result after hours is given up, and the device registers again.
func TestAnOperationWithoutEndIsGivenUp(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		slow := say{status: 202, after: 50 * time.Minute, body: assigning}
		s := newScript(slow, slow, slow, slow, say{status: 200, body: assigned})
		var failures []error
		_, err := register(t, s, &provisioning.Options{OnEvent: func(e provisioning.Event) {
			if e.Step == provisioning.StepRetrying {
				failures = append(failures, e.Err)
			}
		}})
		require.NoError(t, err)
		requireRequests(t, s, "register", "poll op-1", "poll op-1", "poll op-1", "register")
		require.Len(t, failures, 1)
		require.ErrorIs(t, failures[0], transport.Timeout)
	})
}

// never is a policy that grants a retry after the longest time.
type never struct{}

func (never) Decide(retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: math.MaxInt64}
}

// The random part of a wait does not turn the longest delay into none.
func TestTheLongestDelayStaysLong(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		s := newScript(say{status: 429, body: throttled})
		c, err := provisioning.New(identity(t), s, &provisioning.Options{
			Policy: never{}, Rand: func() uint64 { return math.MaxInt64 / 2 }})
		require.NoError(t, err)
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireRequests(t, s, "register")
	})
}

func TestAnEmptySigningRequestIsNone(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200, body: assigned})
		_, err := register(t, s, &provisioning.Options{CSR: []byte{}})
		require.NoError(t, err)
		require.Equal(t, `{"registrationId":"reg-0001"}`, s.bodies[0])
		require.Equal(t, "2019-03-31", s.logins[0].APIVersion)
	})
}
