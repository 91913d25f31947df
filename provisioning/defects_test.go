package provisioning_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Defects of the official clients that the loop must not have. Those of a protocol are tested with
// its carrier.

func TestDefectAThrottledRegisterIsTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{status: 429, body: throttled}, say{status: 202, body: assigning},
			say{status: 429, body: throttled},
			say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "register", "poll op-1", "poll op-1")
	})
}

func TestDefectThePollDelayIgnoresCancellation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		c, err := provisioning.New(identity(t), newScript(say{status: 202, body: assigning}), nil)
		require.NoError(t, err)
		began := time.Now()
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, transport.Cancelled)
		require.Equal(t, time.Millisecond, time.Since(began))
	})
}

func TestDefectTheRetryAfterOfAnErrorIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{status: 503, after: 20 * time.Second}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		require.Equal(t, 20*time.Second, s.at[1])
	})
}

func TestDefectTheRetryAfterOfTheFirstAnswerIsIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{status: 202, after: 7 * time.Second, body: assigning}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, s.at[1])
	})
}

func TestDefectOneTimeoutForEverything(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{status: 200, body: assigned})
		_, err := register(t, s, &provisioning.Options{RequestTimeout: 5 * time.Second})
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, s.logins[0].Timeout)
	})
}

func TestDefectAPayloadIsDecodedAsASCII(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, err := register(t, newScript(say{status: 200, body: `{"status":"assigned","registrationState":{"assignedHub":` +
			`"h.example.test","deviceId":"d","payload":"Ünïcode ✓"}}`}), nil)
		require.NoError(t, err)
		require.Equal(t, `"Ünïcode ✓"`, string(a.Payload))
	})
}

func TestDefectATransportErrorCancelsTheRegistration(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{open: lost()}, say{err: lost()}, say{status: 202, body: assigning}, say{err: lost()},
			say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "register", "poll op-1", "poll op-1")
		require.Len(t, s.logins, 4)
	})
}

func TestDefectCodeAndMessageOfTheServiceAreLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, err := register(t, newScript(say{status: 401, body: `{"errorCode":401002,"trackingId":"t-9","message":` +
			`"Invalid certificate.","info":{"a":"b"},"timestampUtc":"2030-01-01T00:00:00Z"}`}), nil)
		require.EqualError(t, err,
			"register: unauthorized: provisioning service answered 401 (token or certificate refused), "+
				"code 401002: Invalid certificate. (tracking id t-9); check the key, or that the certificate is sent with "+
				"its intermediates, the clock, and that the enrollment exists")
	})
}

func TestDefectTheClientIsUnusableAfterATimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{hangs: true}, say{status: 200, body: assigned})
		c, err := provisioning.New(identity(t), s, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = c.Register(t.Context())
		require.NoError(t, err)
	})
}

func TestDefectTheOperationIsLostWithAFailedPoll(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{status: 202, body: assigning}, say{status: 500, body: `{"errorCode":500001}`},
			say{status: 202, body: `{"status":"assigning"}`}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "poll op-1", "poll op-1", "poll op-1")
	})
}

func TestDefectOnly500IsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, status := range []int{502, 503, 504, 599} {
			_, err := register(t, newScript(say{status: status}, say{status: 200, body: assigned}), nil)
			require.NoError(t, err, status)
		}
	})
}

func TestDefectNobodyKnowsWhatIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var lines []string
		_, err := register(t, newScript(say{status: 503, after: 3 * time.Second}, say{status: 200, body: assigned}),
			&provisioning.Options{OnEvent: func(e provisioning.Event) { lines = append(lines, e.String()) }})
		require.NoError(t, err)
		require.Equal(t, []string{"registering, attempt 1",
			"retrying, attempt 2 in 3s: register: service unavailable: provisioning service answered 503",
			"registering, attempt 2", "assigned, attempt 2"}, lines)
	})
}

func TestDefectDisabledAndUnassignedAreNotUnderstood(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScript(say{status: 202, body: assigning},
			say{status: 200, body: `{"operationId":"op-1","status":"unassigned"}`}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "poll op-1", "poll op-1")
		_, err = register(t, newScript(say{status: 200, body: `{"operationId":"","status":"disabled","registrationState":` +
			`{"status":"disabled"}}`}), nil)
		require.ErrorIs(t, err, transport.Forbidden)
		require.ErrorContains(t, err, "the enrollment is disabled")
	})
}

func TestDefectAttemptsHaveNoLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		busy := say{status: 503}
		_, err := register(t, newScript(busy, busy, busy), &provisioning.Options{
			Policy: retrypolicy.MaxAttempts{Policy: retrypolicy.Immediately{}, Total: 3}})
		require.ErrorIs(t, err, transport.RetryExpired)
	})
}
