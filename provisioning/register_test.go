package provisioning_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func TestRegisterAndPoll(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		var steps []provisioning.Step
		var delays []time.Duration
		s := newScript(say{status: 202, after: 3 * time.Second, body: assigning},
			say{status: 202, body: assigning}, say{status: 200, body: assigned})
		a, err := register(t, s, &provisioning.Options{Payload: []byte(`{"model":"x"}`), OnEvent: func(e provisioning.Event) {
			steps, delays = append(steps, e.Step), append(delays, e.Delay)
			require.Equal(t, 1, e.Attempt)
			require.NoError(t, e.Err)
		}})
		require.NoError(t, err)
		require.Equal(t, &provisioning.Assignment{Hub: "hub1.example.test", DeviceID: "dev-1",
			Substatus: "initialAssignment"}, a)
		requireRequests(t, s, "register", "poll op-1", "poll op-1")
		require.Equal(t, `{"registrationId":"reg-0001","payload":{"model":"x"}}`, s.bodies[0])
		require.Empty(t, s.bodies[1])
		require.Equal(t, []time.Duration{0, 3 * time.Second, 5 * time.Second}, s.at)
		require.Equal(t, []provisioning.Step{provisioning.StepRegistering, provisioning.StepAssigning,
			provisioning.StepPolling,
			provisioning.StepAssigning, provisioning.StepPolling, provisioning.StepAssigned}, steps)
		require.Equal(t, []time.Duration{0, 3 * time.Second, 0, 2 * time.Second, 0, 0}, delays)
		require.Equal(t, "2019-03-31", s.logins[0].APIVersion)
		require.Equal(t, provisioning.GlobalEndpoint, s.logins[0].Endpoint)
		require.Equal(t, 60*time.Second, s.logins[0].Timeout)
		require.Len(t, s.logins, 1, "one connection")
	})
}

func TestTheAssignmentIsTheLoginAtTheHub(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		c, err := provisioning.New(identity(t), newScript(say{status: 200, body: assigned}), nil)
		require.NoError(t, err)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		creds := c.Credentials(a)
		require.NoError(t, creds.Validate())
		require.Equal(t, "hub1.example.test/devices/dev-1", creds.Resource())
		token, err := creds.NewToken(t.Context())
		require.NoError(t, err)
		own, err := transport.SharedKey(ownKey)
		require.NoError(t, err)
		want, err := transport.SignToken(t.Context(), own, creds.Resource(), "", token.Expires)
		require.NoError(t, err)
		require.Equal(t, want.Text.Reveal(), token.Text.Reveal())
	})
}

func TestTheSecondKeyIsTriedAtOnceAndKept(t *testing.T) {
	for name, refusal := range map[string]say{
		"in an answer":    {status: 401, body: `{"errorCode":401002}`},
		"at the login":    {open: &transport.Error{Kind: transport.Unauthorized, Scope: transport.ScopeConnection}},
		"in the exchange": {err: &transport.Error{Kind: transport.Unauthorized, Scope: transport.ScopeConnection}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				id := identity(t)
				second, err := provisioning.GroupKey(groupKey, "other")
				require.NoError(t, err)
				id.SecondSign = second
				s := newScript(refusal, say{status: 202, body: assigning}, say{err: lost()}, say{status: 200, body: assigned})
				var other int
				c, err := provisioning.New(id, s, &provisioning.Options{Policy: retrypolicy.Immediately{},
					OnEvent: func(e provisioning.Event) {
						if e.Step == provisioning.StepOtherKey {
							other++
							require.ErrorIs(t, e.Err, transport.Unauthorized)
						}
					}})
				require.NoError(t, err)
				a, err := c.Register(t.Context())
				require.NoError(t, err)
				require.True(t, a.SecondKey)
				require.Equal(t, 1, other)
				require.NotEqual(t, s.tokens[0], s.tokens[1])
				require.Equal(t, 2*time.Second, s.at[len(s.at)-1], "without a delay but that of the poll")
				mac, err := c.Credentials(a).Sign(t.Context(), []byte("text"))
				require.NoError(t, err)
				want, err := second(t.Context(), []byte("text"))
				require.NoError(t, err)
				require.Equal(t, want, mac)
			})
		})
	}
}

func TestEveryKeyIsRefusedOnce(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		id.SecondSign = id.Sign
		s := newScript(say{status: 401, body: `{"errorCode":401002}`}, say{status: 401, body: `{"errorCode":401002}`})
		c, err := provisioning.New(id, s, nil)
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)
		require.Empty(t, s.says)
	})
}

// A retry-after is a minimum wherever it comes, and the policy's delay is one, too.
func TestRetryAfterIsAMinimum(t *testing.T) {
	policy := retrypolicy.Fixed{Delay: 5 * time.Second}
	for name, row := range map[string]struct {
		says        []say
		least, most time.Duration
	}{
		"of a refused register": {[]say{{status: 429, after: 40 * time.Second, body: throttled},
			{status: 200, body: assigned}},
			40 * time.Second, 60 * time.Second},
		"of a refused poll": {[]say{{status: 202, body: assigning}, {status: 503, after: 40 * time.Second},
			{status: 200, body: assigned}}, 42 * time.Second, 42 * time.Second},
		"shorter than the policy's": {[]say{{status: 503, after: time.Second}, {status: 200, body: assigned}},
			5 * time.Second, 5 * time.Second},
		"of a failed connection": {[]say{{open: &transport.Error{Kind: transport.Unavailable,
			Scope:      transport.ScopeConnection,
			RetryAfter: 40 * time.Second}}, {status: 200, body: assigned}}, 40 * time.Second, 40 * time.Second},
		"of an operation": {[]say{{status: 202, after: 2 * time.Minute, body: assigning}, {status: 200, body: assigned}},
			2 * time.Minute, 2 * time.Minute},
		"shorter than the interval of polls": {[]say{{status: 202, after: time.Second, body: assigning},
			{status: 200, body: assigned}}, 2 * time.Second, 2 * time.Second},
		"negative": {[]say{{status: 202, after: -time.Minute, body: assigning}, {status: 200, body: assigned}},
			2 * time.Second, 2 * time.Second},
		"of days": {[]say{{status: 202, after: 240 * time.Hour, body: assigning}, {status: 200, body: assigned}},
			time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s := newScript(row.says...)
				_, err := register(t, s, &provisioning.Options{Policy: policy})
				require.NoError(t, err)
				last := s.at[len(s.at)-1]
				require.GreaterOrEqual(t, last, row.least)
				require.LessOrEqual(t, last, row.most)
			})
		})
	}
}

// A throttled register comes back after 10 s or more, spread over a minute, and after another
// refusal spread over three. A throttled poll, and a policy of the program, are spread by half of
// their delay.
func TestThrottlingIsPacedAndSpread(t *testing.T) {
	busy, done := say{status: 429, body: throttled}, say{status: 200, body: assigned}
	for name, row := range map[string]struct {
		says        []say
		policy      retrypolicy.Policy
		least, most time.Duration // from the request before the last one
	}{
		"a register":    {[]say{busy, done}, nil, 10 * time.Second, 70 * time.Second},
		"a second time": {[]say{busy, busy, done}, nil, 10 * time.Second, 195 * time.Second},
		"a poll":        {[]say{{status: 202, body: assigning}, busy, done}, nil, 10 * time.Second, 15 * time.Second},
		"a first time again": {[]say{busy, {status: 202, body: assigning}, {status: 404}, busy, done}, nil, 10 * time.Second,
			82 * time.Second},
		"an own policy": {[]say{busy, done}, retrypolicy.Fixed{Delay: 10 * time.Second}, 10 * time.Second, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				seen, longest := map[time.Duration]bool{}, time.Duration(0)
				for i := range 20 {
					s := newScript(row.says...)
					_, err := register(t, s, &provisioning.Options{Policy: row.policy, Rand: rand.NewPCG(1, uint64(i)).Uint64})
					require.NoError(t, err)
					n := len(s.at)
					delay := s.at[n-1] - s.at[n-2]
					require.GreaterOrEqual(t, delay, row.least)
					require.LessOrEqual(t, delay, row.most)
					seen[delay], longest = true, max(longest, delay)
				}
				require.Greater(t, len(seen), 15)
				require.Greater(t, longest, row.least+(row.most-row.least)*2/3)
			})
		})
	}
}

// What the codes mean, and that hopeless failures are not repeated.
func TestRefusals(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		body   string
		kind   transport.Kind
		text   string
	}{
		"bad request":       {400, `{"errorCode":400004,"message":"no"}`, transport.Invalid, "code 400004: no"},
		"custom allocation": {400, `{"errorCode":400207}`, transport.Invalid, "custom allocation failed"},
		"no hub":            {400, `{"errorCode":400208}`, transport.NotFound, "no hub is linked"},
		"allocator":         {400, `{"errorCode":400209}`, transport.Forbidden, "not authorized"},
		"credential":        {401, `{"errorCode":401000}`, transport.Unauthorized, "code 401000"},
		"certificate": {401, `{"errorCode":401002,"trackingId":"t-9","message":"Invalid certificate.","info":{"a":"b"}}`,
			transport.Unauthorized,
			"register: unauthorized: provisioning service answered 401 (token or certificate refused), " +
				"code 401002: Invalid certificate. (tracking id t-9); check the key, or that the certificate is sent with " +
				"its intermediates, the clock, and that the enrollment exists"},
		"the status counts":   {401, assigned, transport.Unauthorized, ""},
		"bare 401":            {401, "", transport.Unauthorized, "provisioning service answered 401"},
		"forbidden":           {403, `{"errorCode":403001}`, transport.Forbidden, ""},
		"bare 403":            {403, "", transport.Forbidden, ""},
		"a page":              {403, "<html>", transport.Protocol, "a proxy or a captive portal"},
		"not enrolled":        {404, `{"errorCode":404201,"trackingId":"abc"}`, transport.NotFound, "(tracking id abc)"},
		"bare 404":            {404, `{}`, transport.NotFound, ""},
		"method":              {405, `{}`, transport.Unsupported, ""},
		"media type":          {415, `{}`, transport.Unsupported, ""},
		"unassigned status":   {418, `{}`, transport.Unknown, ""},
		"redirection":         {302, ``, transport.Protocol, "a proxy or a captive portal"},
		"success of another":  {204, ``, transport.Protocol, "a proxy or a captive portal"},
		"accepted by another": {201, `{"operationId":"o","status":"assigning"}`, transport.Protocol, "a proxy or a captive"},
		"code alone":          {0, `{"errorCode":404201}`, transport.NotFound, "answered 404 (not enrolled), code 404201"},
		"text as a code":      {404, `{"errorCode":"404201"}`, transport.NotFound, "not enrolled"},
		"disabled": {200, `{"operationId":"","status":"disabled","registrationState":{"status":"disabled"}}`,
			transport.Forbidden,
			"disabled"},
		"blacklisted": {200, `{"status":"Blacklisted"}`, transport.Forbidden, "disabled"},
		"failed": {200,
			`{"operationId":"x","status":"failed","registrationState":{"errorCode":400207,` +
				`"errorMessage":"Custom allocation failed with status code: 400"}}`, transport.Invalid,
			"status code: 400"},
		"failed, unauthorized": {200, `{"status":"failed","registrationState":{"errorCode":401002}}`, transport.Unauthorized,
			""},
		"failed, no reason": {200, `{"status":"failed"}`, transport.Unknown, ""},
		"new status":        {200, `{"status":"parked\n"}`, transport.Unknown, `parked`},
		"connection profile": {200,
			`{"status":"assigned","registrationState":{"assignedHub":"h.example.test",` +
				`"deviceId":"d","connectionProfile":"mqttV5"}}`,
			transport.Unsupported, "mqttV5"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s := newScript(say{status: row.status, body: row.body})
				_, err := register(t, s, nil)
				require.ErrorIs(t, err, row.kind)
				require.ErrorContains(t, err, row.text)
				refusal, ok := errors.AsType[*transport.StatusError](err)
				require.True(t, ok)
				require.Equal(t, "provisioning service", refusal.Service)
			})
		})
	}
}

func TestTransientRefusalsAreRepeated(t *testing.T) {
	for _, first := range []say{
		{status: 408}, {status: 429, body: throttled}, {status: 500, body: `{"errorCode":500001}`}, {status: 502},
		{status: 503, body: "<html>busy</html>"}, {status: 504}, {status: 599},
		{status: 0, body: `{"errorCode":503001}`},
		{status: 409, body: `{"errorCode":409001}`}, {status: 412}, // a conflict, once
		{err: lost()}, {open: lost()}, {err: &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection}},
		{err: errors.New("an error without a kind")}, {err: context.Canceled}, // of the carrier's own context
		{err: &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection, Err: context.Canceled}},
		{open: &transport.Error{Kind: transport.Cancelled, Scope: transport.ScopeConnection}},
		{status: 200, body: "not JSON"}, {status: 200, body: "[]"}, {status: 200, body: `{"status":"assigned"}`},
		{status: 200, body: `{"status":"assigned","registrationState":{"assignedHub":"a b","deviceId":"d"}}`},
		{status: 200, body: `{"operationId":null,"status":"unassigned"}`},
	} {
		testkit.In2030(t, func(t *testing.T) {
			s := newScript(first, say{status: 200, body: assigned})
			_, err := register(t, s, nil)
			require.NoError(t, err, "%+v", first)
		})
	}
}

func TestASecondConflictIsFinal(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		conflict := say{status: 409, body: `{"errorCode":409001}`}
		_, err := register(t, newScript(conflict, conflict), nil)
		require.ErrorIs(t, err, transport.Conflict)
	})
}

func TestAwaitEnrollment(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		unknown := say{status: 404, body: `{"errorCode":404201}`}
		s := newScript(unknown, unknown, say{status: 200, body: assigned})
		_, err := register(t, s, &provisioning.Options{AwaitEnrollment: true})
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.at[1], 10*time.Second)
		other := say{status: 404, body: `{"errorCode":404001}`}
		_, err = register(t, newScript(unknown, other), &provisioning.Options{AwaitEnrollment: true})
		require.ErrorIs(t, err, transport.NotFound)
	})
}

// An operation that the service does not know is not the end: the device registers again.
func TestALostOperationRegistersAgain(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 202, body: assigning}, say{status: 404, body: `{"errorCode":404203}`},
			say{status: 202, body: `{"operationId":"op-2","status":"assigning"}`}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "poll op-1", "register", "poll op-2")
	})
}

func TestAPollWithoutAResultKeepsTheOperation(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 202, body: assigning}, say{status: 500, body: `{"errorCode":500001}`},
			say{status: 202, body: `{"status":"assigning"}`},
			say{status: 200, body: `{"operationId":"op-1","status":"unassigned"}`}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "poll op-1", "poll op-1", "poll op-1", "poll op-1")
	})
}

func TestEventsSayWhatIsWaitedFor(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		var lines []string
		_, err := register(t, newScript(say{status: 503, after: 3 * time.Second}, say{status: 200, body: assigned}),
			&provisioning.Options{OnEvent: func(e provisioning.Event) { lines = append(lines, e.String()) }})
		require.NoError(t, err)
		require.Equal(t, []string{"registering, attempt 1",
			"retrying, attempt 2 in 3s: register: service unavailable: provisioning service answered 503",
			"registering, attempt 2", "assigned, attempt 2"}, lines)
	})
}

func TestWithoutAnOperationTheDeviceRegistersAgain(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 202, body: `{"status":"assigning"}`}, say{status: 202, body: `{}`},
			say{status: 200, body: `{"status":"unassigned"}`}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "register", "register", "register")
		require.Equal(t, 6*time.Second, s.at[3])
	})
}

func TestThePolicyEndsTheRetries(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		busy := say{status: 503}
		_, err := register(t, newScript(busy, busy, busy), &provisioning.Options{
			Policy: retrypolicy.MaxAttempts{Policy: retrypolicy.Immediately{}, Total: 3}})
		require.ErrorIs(t, err, transport.RetryExpired)
		ended, ok := errors.AsType[*retrypolicy.Error](err)
		require.True(t, ok)
		require.Equal(t, 2, ended.Retries)
		require.ErrorContains(t, err, "answered 503")
		_, err = register(t, newScript(busy), &provisioning.Options{Policy: retrypolicy.NoRetry{}})
		require.ErrorIs(t, err, transport.RetryExpired)
	})
}

// A policy may return 0 by accident, as a shift that overflows does.
func TestAPolicyWithoutADelayDoesNotRegisterWithoutEnd(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(slices.Repeat([]say{{status: 503}}, 50)...)
		p := retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, 0 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := provisioning.New(identity(t), s, &provisioning.Options{Policy: p})
		require.NoError(t, err)
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, transport.Cancelled)
		require.Zero(t, s.at[1], "the first retry is at once")
		require.Less(t, len(s.at), 13)
	})
}

// ending ends a context when somebody looks into it after scrub.Cause, which looks three times.
type ending struct {
	end   context.CancelFunc
	looks *int
}

func (ending) Error() string { return "reset" }

func (e ending) Unwrap() error {
	if *e.looks++; *e.looks > 3 {
		e.end()
	}
	return nil
}

func TestAContextThatEndsWhileAFailureIsJudged(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newScript(say{err: &transport.Error{Kind: transport.Network, Err: ending{cancel, new(int)}}})
		c, err := provisioning.New(identity(t), s, nil)
		require.NoError(t, err)
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, transport.Cancelled)
		require.ErrorContains(t, err, "context canceled; the latest failure: register: network failure: reset")
	})
}

func TestContextEndsEveryWait(t *testing.T) {
	for name, says := range map[string][]say{
		"a poll's wait":  {{status: 202, after: time.Hour, body: assigning}},
		"a retry's wait": {{status: 503, after: time.Hour}},
		"an exchange":    {{hangs: true}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s := newScript(says...)
				c, err := provisioning.New(identity(t), s, nil)
				require.NoError(t, err)
				why := errors.New("why")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(why) })
				began := time.Now()
				_, err = c.Register(ctx)
				require.Equal(t, time.Minute, time.Since(began))
				require.ErrorIs(t, err, transport.Cancelled)
				require.ErrorIs(t, err, why)
				require.Zero(t, s.open)
				s.says = []say{{status: 200, body: assigned}}
				_, err = c.Register(t.Context())
				require.NoError(t, err, "the client can be used again")
			})
		})
	}
	testkit.In2030(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c, err := provisioning.New(identity(t), newScript(), &provisioning.Options{Spread: time.Hour})
		require.NoError(t, err)
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestTheErrorOfAnEndedContextSaysWhatWasWaitedFor(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := provisioning.New(identity(t), newScript(say{status: 429, after: time.Hour, body: throttled}), nil)
		require.NoError(t, err)
		_, err = c.Register(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "throttled")
		require.ErrorContains(t, err, "429001")
	})
}

func TestTheFirstWaitIsRandom(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 10 {
			s := newScript(say{status: 200, body: assigned})
			_, err := register(t, s, &provisioning.Options{Spread: time.Minute})
			require.NoError(t, err)
			require.Less(t, s.at[0], time.Minute)
			seen[s.at[0]] = true
		}
		require.Greater(t, len(seen), 5)
	})
}

// A connection is not kept over a long wait, and neither is a token.
func TestConnectionsAreReplaced(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 202, after: 31 * time.Second, body: assigning}, say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		require.Len(t, s.logins, 2)

		var says []say
		for range 130 { // an hour
			says = append(says, say{status: 202, after: 30 * time.Second, body: assigning})
		}
		s = newScript(append(says, say{status: 200, body: assigned})...)
		_, err = register(t, s, nil)
		require.NoError(t, err)
		require.Len(t, s.logins, 2)
		require.NotEqual(t, s.tokens[0], s.tokens[1])
	})
}

func TestCallbacksThatPanic(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		id.Sign = func(context.Context, []byte) ([]byte, error) { panic("no key") }
		c, err := provisioning.New(id,
			newScript(), &provisioning.Options{OnEvent: func(provisioning.Event) { panic("event") }})
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)
		require.ErrorContains(t, err, "callback Identity.Sign panicked: no key")
	})
}

// A callback that panics or ends its goroutine fails one registration or call, not the next one.
func TestCallbacksThatPanicLeaveTheClientUsable(t *testing.T) {
	for _, name := range []string{"Options.Policy", "Options.Rand", "Identity.Now", "Identity.Now ends its goroutine"} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				broken := true
				check := func(callback string) {
					if broken && strings.HasPrefix(name, callback) {
						if strings.Contains(name, "ends") {
							runtime.Goexit()
						}
						panic("broken")
					}
				}
				id := identity(t)
				id.Now = func() time.Time {
					check("Identity.Now")
					return time.Now()
				}
				s := newScript(say{status: 503}, say{status: 200, body: assigned}, say{status: 200})
				c, err := provisioning.New(id, s, &provisioning.Options{
					Policy: retrypolicy.Func(func(int, error) (bool, time.Duration) {
						check("Options.Policy")
						return true, time.Second
					}),
					Rand: func() uint64 {
						check("Options.Rand")
						return 0
					}})
				require.NoError(t, err)
				_, err = c.Register(t.Context())
				require.ErrorIs(t, err, transport.Invalid)
				require.ErrorContains(t, err, name[:12])
				require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
				if strings.HasPrefix(name, "Identity.Now") {
					_, err = c.Call(t.Context(), "check", nil)
					require.ErrorIs(t, err, transport.Invalid)
					require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope, "nothing was refused")
				}
				broken = false
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = c.Register(ctx)
				require.NoError(t, err)
				_, err = c.Call(ctx, "check", nil)
				require.NoError(t, err)
				c.CloseIdle()
				require.Zero(t, s.sessions())
			})
		})
	}
}

func TestACSRNeedsTheNewVersionAndReturnsAChain(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 200, body: `{"operationId":"o","status":"assigned","registrationState":{"assignedHub":` +
			`"h.example.test","deviceId":"d","payload":{"a":[1,"\u00e9"]},"substatus":"DeviceDataReset",` +
			`"issuedCertificateChain":["AQID", "BA=="]}}`})
		c, err := provisioning.New(identity(t), s, &provisioning.Options{CSR: []byte{1, 2, 3}})
		require.NoError(t, err)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.Equal(t, [][]byte{{1, 2, 3}, {4}}, a.Chain)
		require.Equal(t, `{"a":[1,"\u00e9"]}`, string(a.Payload))
		require.True(t, a.DataReset())
		require.Nil(t, c.Credentials(a).Sign, "the certificate proves the identity")
		require.Equal(t, `{"registrationId":"reg-0001","csr":"AQID"}`, s.bodies[0])
		require.Equal(t, "2026-11-01", s.logins[0].APIVersion)

		for _, csr := range [][]byte{nil, {1}} {
			s = newScript(say{status: 200, body: assigned})
			_, err = register(t, s, &provisioning.Options{CSR: csr, APIVersion: "2025-07-01-preview"})
			require.NoError(t, err)
			require.Equal(t, "2025-07-01-preview", s.logins[0].APIVersion, "a preview is for those who ask for it")
		}

		for _, chain := range []string{`["!"]`, `[""]`, `[1]`, `{}`, `"AQID"`} { // repeated, then answered well
			s = newScript(say{status: 200, body: `{"status":"assigned","registrationState":{"assignedHub":"h.example.test",` +
				`"deviceId":"d","issuedCertificateChain":` + chain + `}}`}, say{status: 200, body: assigned})
			_, err = register(t, s, nil)
			require.NoError(t, err)
		}
	})
}

func TestNoGoroutineIsLeft(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		_, err := register(t, newScript(say{status: 503}, say{status: 202, body: assigning},
			say{status: 200, body: assigned}), nil)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, before, testkit.Goroutines())
	})
}
